class Play extends HTMLElement {}
customElements.define("g-play", Play);
