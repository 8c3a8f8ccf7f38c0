"""The scenario: who calls, what they want, what the agent has to keep to, and what is right."""

from __future__ import annotations

from examples.tau_chat.desk import CHANGE_FEE, Booking, Desk, Flight

__all__ = ["GOODBYE", "GREETING", "RULES", "SETTLED", "USER", "open_desk"]

# What the simulated user says when nothing is left to say.
GOODBYE = "[hangs up]"

GREETING = "Booking desk, good morning. What can I do for you?"

RULES = f"""You work at an airline's booking desk, and change flights for travellers.
- Ask for the code of the booking, and read it before anything else.
- A change costs the difference in fare, never less than 0, and a fee of {CHANGE_FEE} euros.
- Before you change a flight, say what the change costs in all, and wait for the traveller's yes.
- Say nothing that a tool hasn't told you."""

USER = f"""You play a traveller who calls an airline's booking desk. You are Salome Brun, and your \
booking is RZ4K. You fly from Basel to Porto on 12 June and want to fly a day later, in the \
morning. You pay at most 90 euros for that, the fee included; if it costs more, you keep your \
flight. You mention the price only when it is named. You are in a hurry and a little impatient. \
Say one thing at a time, in one or two sentences, and make nothing up. When your wish is done, or \
when it can't be done, take your leave with the words {GOODBYE}"""

#: What the booking has to be at the end.
SETTLED = Booking("RZ4K", "Salome Brun", "AL 214", 194)


def open_desk() -> Desk:
    """The desk as the traveller finds it.

    Example:
        >>> from examples.tau_chat.scenario import open_desk
        >>> open_desk().bookings["RZ4K"].flight
        'AL 210'
    """
    return Desk(
        [
            Flight("AL 210", "Basel-Porto", "12 June", "09:40", 119),
            Flight("AL 212", "Basel-Porto", "13 June", "06:15", 139, seats=0),
            Flight("AL 214", "Basel-Porto", "13 June", "10:05", 154),
            Flight("AL 216", "Basel-Porto", "13 June", "18:50", 99),
            Flight("AL 330", "Basel-Faro", "13 June", "08:20", 88),
        ],
        {"RZ4K": Booking("RZ4K", "Salome Brun", "AL 210", 119)},
    )
