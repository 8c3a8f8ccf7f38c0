/** A session on the server: a WebSocket, on which each message has one answer. */

import { parseJson } from "./source.js";

/** @typedef {{resolve: (data: any) => void, reject: (error: Error) => void, timer: number}} Waiting */

const WAIT = 600_000; // milliseconds; the server has its own, shorter limits

/** An error that the server answered. */
export class AnswerError extends Error {
  /** @param {{message: string, code?: string, errors?: import("./form.js").Problem[]}} data */
  constructor({ message, code = "", errors = [] }) {
    super(message);
    this.code = code;
    this.errors = errors;
  }
}

/** A session; it dispatches `change` when it opens and when it is lost. */
export class Session extends EventTarget {
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {Waiting[]} */ #waiting = [];
  /** Why it is closed. */
  reason = "";

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Opens a session with an environment of its own, in place of the former one. */
  open() {
    this.close();
    const address = new URL("../ws?trees=1", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = (this.#socket = new WebSocket(address));
    this.reason = "connecting";
    this.dispatchEvent(new Event("change"));
    socket.onopen = () => this.dispatchEvent(new Event("change"));
    socket.onmessage = ({ data }) => this.#receive(parseJson(data));
    socket.onclose = ({ reason }) => {
      if (socket === this.#socket) this.#lose(reason || "the server closed the connection, or can't be reached");
    };
  }

  /** Ends the session on the server, too. */
  close() {
    const socket = this.#socket;
    this.#socket = null;
    this.#lose("closed");
    socket?.close();
  }

  /**
   * Sends a message, and returns the data of its answer.
   * @param {string} type
   * @param {unknown} data
   * @returns {Promise<any>}
   */
  ask(type, data) {
    return new Promise((resolve, reject) => {
      if (!this.isOpen) throw new Error("there is no connection to the server");
      const timer = setTimeout(() => this.#socket?.close(), WAIT);
      this.#waiting.push({ resolve, reject, timer });
      this.#socket?.send(JSON.stringify({ type, data }));
    });
  }

  /** @param {{type: string, data: any}} answer */
  #receive({ type, data }) {
    const asked = this.#waiting.shift();
    clearTimeout(asked?.timer);
    if (type === "error") asked?.reject(new AnswerError(data));
    else asked?.resolve(data);
    if (asked === undefined) this.reason = data?.message ?? ""; // why the server ends the session
  }

  /** @param {string} reason */
  #lose(reason) {
    this.reason = this.reason && this.reason !== "connecting" ? this.reason : reason;
    const error = new Error(`the connection was lost: ${this.reason}`);
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
    this.dispatchEvent(new Event("change"));
  }
}
