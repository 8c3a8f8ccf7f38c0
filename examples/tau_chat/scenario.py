"""The scenario: the traveller's request, the agent's rules, and the expected booking."""

from __future__ import annotations

from examples.tau_chat.booking_system import CHANGE_FEE, Booking, BookingSystem, Flight

__all__ = ["GOODBYE", "GREETING", "RULES", "SETTLED", "USER", "new_system"]

# The simulated user ends the conversation with these words.
GOODBYE = "[hangs up]"

GREETING = "Bookings, good morning. What can I do for you?"

RULES = f"""You work for an airline and change flights for travellers.
- Ask for the booking code, and read the booking before you do anything else.
- A change costs the fare difference, if positive, plus a fee of {CHANGE_FEE} euros.
- Before you change a flight, state the total cost of the change and wait for a yes.
- State only facts that a tool returned."""

USER = f"""You play a traveller who calls an airline to change a booking. You are Salome Brun, \
and your booking is RZ4K. You fly from Basel to Porto on 12 June and want to fly a day later, in \
the morning. You pay at most 90 euros for that, including the fee; if it costs more, you keep your \
flight. Don't mention the price before the agent does. You are in a hurry and a little impatient. \
Make one point at a time, in one or two sentences, and invent nothing. When the change is made, or \
turns out to be impossible, end the conversation with the words {GOODBYE}"""

#: The expected booking at the end.
SETTLED = Booking("RZ4K", "Salome Brun", "AL 214", 194)


def new_system() -> BookingSystem:
    """Return a booking system in its initial state.

    Example:
        >>> from examples.tau_chat.scenario import new_system
        >>> new_system().bookings["RZ4K"].flight
        'AL 210'
    """
    return BookingSystem(
        [
            Flight("AL 210", "Basel-Porto", "12 June", "09:40", 119),
            Flight("AL 212", "Basel-Porto", "13 June", "06:15", 139, seats=0),
            Flight("AL 214", "Basel-Porto", "13 June", "10:05", 154),
            Flight("AL 216", "Basel-Porto", "13 June", "18:50", 99),
            Flight("AL 330", "Basel-Faro", "13 June", "08:20", 88),
        ],
        {"RZ4K": Booking("RZ4K", "Salome Brun", "AL 210", 119)},
    )
