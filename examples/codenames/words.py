"""The words of the game, and a table of clues with the words that they fit."""

from __future__ import annotations

__all__ = ["ASSOCIATIONS", "WORDS", "fits"]

# Each word fits one clue or more. No clue contains a word, so that it is valid on every board.
_TABLE = """
animal: cat cow dog fox frog horse lion monkey mouse pig rabbit sheep snake tiger whale wolf
bird: crow duck eagle egg feather owl parrot
insect: bee butterfly spider
ocean: beach boat fish island pearl pirate salt shark ship wave whale
farm: barn cow egg field horse milk pig seed sheep tractor wheat
jungle: monkey parrot snake spider tiger tree
mountain: cave eagle path snow
weather: cloud lightning rain snow storm sun wind
space: earth moon planet rocket star sun
winter: boot coat glove scarf snow
fruit: apple banana berry cherry lemon orange pear
breakfast: bread coffee egg honey juice milk tea toast
sweet: cake chocolate honey sugar
drink: coffee glass juice milk tea water wine
kitchen: glass knife oven pepper plate salt spoon
music: band bell drum flute guitar piano song violin
school: bell book chalk desk paper pencil teacher test
office: chair desk keyboard paper pen phone printer screen
computer: keyboard mouse net printer screen web
hospital: bed blood doctor needle
body: blood bone brain eye hand heart tooth
clothing: boot button coat dress glove scarf shirt shoe sock
travel: beach hotel island plane ticket train
vehicle: boat bus plane rocket ship taxi tractor train truck
city: bank bridge bus church hotel market police street taxi tower
house: bed chair door key lamp mirror wall window
royal: castle crown king knight prince queen throne
battle: army bomb gun king knight shield soldier sword tank
crime: bank blood gun knife mask police thief
money: bank coin gold market wallet
metal: bell coin gold key nail silver steel tank
jewelry: crown diamond gold pearl ring silver
tool: axe ladder nail rope saw
plant: berry field flower forest grass root rose seed tree wheat
timber: axe desk door fence forest ladder pencil saw tree
sport: ball net team tennis
toy: ball balloon kite puzzle robot
party: balloon band cake candle dress song wine
fairy: castle dragon king prince wand witch wizard
scary: bomb cave ghost mask monster shadow shark snake spider witch wolf
night: bed candle dream lamp moon owl shadow star
film: actor camera monster robot screen star ticket
hot: coffee desert fire oven pepper soup sun tea
round: ball button coin moon orange planet plate ring wheel
sharp: axe knife nail needle pencil saw sword tooth
white: bone chalk cloud ghost milk paper salt sheep snow sugar tooth
red: apple blood cherry fire heart pepper rose
flying: balloon bee butterfly dragon kite plane rocket witch
river: bank boat bridge duck fish frog path water
sewing: button needle shirt thread
"""

ASSOCIATIONS: dict[str, frozenset[str]] = {
    clue: frozenset(words.split())
    for clue, words in (line.split(":") for line in _TABLE.strip().splitlines())
}

WORDS = sorted(frozenset[str]().union(*ASSOCIATIONS.values()))


def fits(clue: str) -> frozenset[str]:
    """Return the words that a clue fits; none if the table doesn't have it.

    Example:
        >>> from examples.codenames.words import fits
        >>> sorted(fits("insect"))
        ['bee', 'butterfly', 'spider']
        >>> fits("entropy")
        frozenset()
    """
    return ASSOCIATIONS.get(clue, frozenset())
