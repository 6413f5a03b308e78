"""The agents of the support desk: plain functions, deterministic, no model and no network.

Each takes the step's input and returns its output, both JSON. Put a model behind any of them later; the
workflow does not change.
"""

import re
from typing import Any

CATEGORIES = {
    "account": {"account", "email", "log", "login", "password", "reset", "username"},
    "billing": {"bill", "card", "charged", "invoice", "payment", "refund", "subscription"},
    "shipping": {"address", "arrived", "courier", "delivery", "package", "parcel", "tracking"},
    "integrations": {"api", "integration", "sdk", "webhook", "webhooks"},
}
LEGAL = {"court", "lawsuit", "lawyer", "sue"}
ANGRY = {"angry", "disgrace", "furious", "outrageous", "unacceptable"}
SURE = 0.6  # below it a person reads the ticket; workflow.yaml branches on the same number


def classify(input: dict[str, Any]) -> dict[str, Any]:
    """What is it about, how sure are we, and how does the customer feel?"""
    words = re.findall(r"[a-z]+", input["text"].lower())
    hits = {name: sum(word in known for word in words) for name, known in CATEGORIES.items()}
    category = max(hits, key=lambda name: hits[name])
    # One lucky word proves little: the half in the divisor asks for a second one.
    confidence = round(hits[category] / (sum(hits.values()) + 0.5), 2)
    mood = "legal" if LEGAL & set(words) else "angry" if ANGRY & set(words) else "calm"
    return {"category": category if hits[category] else "unknown", "confidence": confidence, "mood": mood}


def respond(input: dict[str, Any]) -> dict[str, Any]:
    """Answer with the best article."""
    best = input["articles"][0]
    reply = f"Hello {input['customer']},\n\n{best['text']}\n\nDid this help? Just answer this mail if it did not."
    return {"status": "answered", "article": best["title"], "reply": reply}


def escalate(input: dict[str, Any]) -> dict[str, Any]:
    """Hand the ticket to a person, with the reason."""
    seen = input["classification"]
    if seen["mood"] != "calm":
        queue, reason = "urgent", f"the customer sounds {seen['mood']}"
    elif seen["confidence"] < SURE:
        queue, reason = "triage", f"not sure what it is about (confidence {seen['confidence']})"
    else:
        queue, reason = seen["category"], "no article answers it"
    reply = f"Hello {input['customer']},\n\nthank you for writing. A colleague is looking at it and will answer today."
    return {"status": "escalated", "queue": queue, "reason": reason, "reply": reply}


def apologise(input: dict[str, Any]) -> dict[str, Any]:
    """Something of ours broke: say so, and promise a person."""
    reply = f"Hello {input['customer']},\n\nwe could not look into this automatically. A colleague will write to you."
    return {"status": "fallback", "reply": reply}
