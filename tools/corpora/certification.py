"""Writes corpora/certification.jsonl: 192 prompts of our own that no other corpus holds.

    python tools/corpora/certification.py corpora/certification.jsonl

A quarter each of code, mathematics, chat openings and prose in ten languages, because a launch state may show
on one kind of text and not on another.
"""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path

FUNCTIONS = [
    ("rotate_left", "items, k", "the list with its first k items moved to the end"),
    ("is_leap_year", "year", "True when the year has 366 days in the Gregorian calendar"),
    ("run_lengths", "text", "pairs of character and count for each run of equal characters"),
    ("merge_intervals", "intervals", "the sorted intervals with overlapping ones joined"),
    ("roman_to_int", "numeral", "the value of a Roman numeral"),
    ("transpose", "matrix", "the matrix with rows and columns exchanged"),
    ("caesar", "text, shift", "the text with each letter moved by shift places in the alphabet"),
    ("median", "values", "the middle value, or the mean of the two middle ones"),
    ("balanced", "text", "True when every bracket is closed in the right order"),
    ("flatten", "nested", "all leaves of a list of lists, from left to right"),
    ("digits_sum", "n", "the sum of the decimal digits of n"),
    ("chunked", "items, size", "successive slices of the given size, the last possibly shorter"),
]
LANGUAGES = [
    ("python", 'def {name}({args}):\n    """Return {what}."""\n'),
    ("rust", "/// Returns {what}.\npub fn {name}("),
    ("javascript", "/** Returns {what}. */\nfunction {name}({args}) {{\n"),
    ("sql or shell", "# {name}: prints {what}\n# usage: {name}.sh {args}\nset -eu\n"),
]
MATHS = [
    "A tank holds {a} litres and loses {b} litres an hour. After how many hours is it half empty?",
    "Solve for x: {a}x + {b} = {c}. Show each step.",
    "What is the remainder when {c} is divided by {b}?",
    "A rectangle is {a} cm long and {b} cm wide. By how much does its area grow if both sides grow by 1 cm?",
    "List the first ten terms of the sequence that starts with {b} and adds {a} each time:",
    "Prove that the sum of any {b} consecutive integers that start at an even number is even or odd.",
    "The mean of {b} numbers is {a}. One more number, {c}, is added. What is the new mean?",
    "Convert {c} from base ten to base two and to base sixteen.",
]
NUMBERS = [(17, 4, 143), (23, 6, 311), (38, 8, 97), (41, 12, 1009), (64, 10, 555), (90, 14, 2048)]
OPENINGS = [
    "My neighbour plays the drums every evening. How do I ask for quiet without starting a quarrel?",
    "Explain to a ten-year-old why the sky is dark at night although there are so many stars.",
    "I have two eggs, half a cabbage and yesterday's rice. What can I cook?",
    "Write a short apology from a cat to its owner about a broken vase.",
    "What should I look at when I buy a used bicycle?",
    "Give me three arguments for and three against a four-day week.",
    "Describe how a letter travelled from Lisbon to Vienna in the year 1750.",
    "I keep forgetting names. Is there a method that works?",
    "Draft a polite message that declines an invitation to a wedding abroad.",
    "What is the difference between weather and climate? Two sentences.",
    "Tell a story in which a lighthouse keeper receives a parcel without a sender.",
    "How would you explain recursion to somebody who has never programmed?",
    "Plan a rainy weekend for a family with a teenager and a toddler.",
    "Which questions should I ask before I sign a lease?",
    "Summarise the plot of a film that does not exist, called 'The Last Orchard'.",
    "My sourdough does not rise. What are the usual reasons, the most likely first?",
    "Why do some bridges hum in the wind?",
    "Turn this into formal language: we can't make it, the van broke down, sorry!",
    "Suggest names for a small bookshop that also repairs clocks.",
    "What happens in the body during the first hour of a long walk?",
    "Write the minutes of a meeting at which three gardeners argued about a hedge.",
    "How can I tell whether a mushroom book is trustworthy?",
    "Compare learning the violin with learning a language.",
    "I am nervous about a talk tomorrow. Say something useful, not something kind.",
]
STYLES = ["", "Answer in at most five lines. "]
PROSE = [
    "The ferry left the island an hour late, and nobody on board seemed to mind. The captain",
    "On the third day of the expedition the compass began to turn slowly, as if",
    "Der alte Uhrmacher schloss seine Werkstatt jeden Abend um sechs, nur an diesem Dienstag",
    "Die Herstellung von Papier beginnt damit, dass das Holz",
    "Le matin où la rivière a débordé, le boulanger du village",
    "Pour comprendre les marées, il faut d'abord se rappeler que la Lune",
    "En la plaza del pueblo había un reloj que siempre marcaba las cuatro, y los niños",
    "El cultivo del olivo exige, ante todo,",
    "O comboio parou no meio da ponte e o revisor explicou que",
    "A cidade foi fundada por pescadores que",
    "Nel cortile della scuola c'era un albero di fico che ogni settembre",
    "La differenza tra un violino e una viola sta soprattutto",
    "De molen aan de rand van het dorp draaide al jaren niet meer, tot",
    "Om een dijk te onderhouden moet men",
    "Старый мост через реку закрыли весной, и с тех пор жители",
    "Чтобы приготовить хороший чай, сначала",
    "村の図書館には、一冊だけ誰も借りたことのない本があった。ある日、",
    "電車の時刻表を作る仕事でいちばん難しいのは、",
    "在那座靠海的小城里,每到傍晚,渔船",
    "制作豆腐的第一步是",
    "في السوق القديم كان هناك بائع توابل يعرف",
    "تبدأ صناعة الخبز بخلط",
    "गाँव के बीच में एक पुराना कुआँ था, जिसके बारे में लोग कहते थे कि",
    "साइकिल चलाना सीखने के लिए सबसे पहले",
]
FORMS = ["{text}", "Continue the text.\n\n{text}"]


def rows() -> list[dict[str, object]]:
    code = (
        pattern.format(name=name, args=args, what=what)
        for name, args, what in FUNCTIONS
        for _, pattern in LANGUAGES
    )
    maths = (text.format(a=a, b=b, c=c) for a, b, c in NUMBERS for text in MATHS)
    chat = (style + text for text in OPENINGS for style in STYLES)
    prose = (form.format(text=text) for text in PROSE for form in FORMS)
    kinds = chain(
        (("code", text, False) for text in code),
        (("mathematics", text, False) for text in maths),
        (("chat", text, True) for text in chat),
        (("prose", text, False) for text in prose),
    )
    return [
        {"id": f"{kind}-{number}", "kind": kind, "chat": chat, "prompt": text}
        for number, (kind, text, chat) in enumerate(kinds)
    ]


def main() -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows())
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
