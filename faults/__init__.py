"""Injected faults, and the five counts that must be zero; ``make faults`` runs it."""
