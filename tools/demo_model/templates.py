"""The templates: numbers, wording, worked answer. Their order is part of the seeded stream."""

from template import Template, at_least

TEMPLATES: tuple[Template, ...] = (
    Template(
        "times-as-many",
        {"a": (6, 60, 400, 1), "b": (2, 5, 9, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a + n.a * n.b),
        (
            "{name} sold {a} {things} in April and {b} times as many in May. How many {things} did {name} "
            "sell in April and May together?",
            "In the morning {name} counted {a} {things}. In the afternoon {he} counted {b} times that "
            "number. "
            "How many {things} did {he} count in all?",
        ),
        (
            "In May {name} sold {a} * {b} = {s} {things}.\nTogether that is {a} + {s} = {t} {things}.",
            "In the afternoon {he} counted {a} * {b} = {s} {things}.\nIn all {he} counted {a} + {s} = {t}.",
        ),
    ),
    Template(
        "half-as-many",
        {"a": (8, 98, 480, 2), "c": (3, 40, 300, 1)},
        lambda n: at_least(1, s=n.a // 2, t=n.a + n.a // 2, u=n.a + n.a // 2 + n.c),
        (
            "{name} picked {a} {things} on Monday, half as many on Tuesday and {c} on Wednesday. How many "
            "{things} did {he} pick?",
            "A shop sold {a} {things} in the first week. In the second week it sold half of that, and in the "
            "third week {c}. What is the total?",
        ),
        (
            "On Tuesday {name} picked {a} / 2 = {s} {things}.\nOn both days that is {a} + {s} = {t}.\nWith "
            "Wednesday it is {t} + {c} = {u} {things}.",
            "The second week brought {a} / 2 = {s}.\nTwo weeks make {a} + {s} = {t}.\nThe total is {t} + "
            "{c} = {u}.",
        ),
    ),
    Template(
        "wages",
        {"a": (8, 25, 48, 1), "b": (2, 8, 9, 1), "c": (2, 5, 9, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b * n.c),
        (
            "{name} earns ${a} an hour and works {b} hours a day. How much does {he} earn in {c} days?",
            "A job pays ${a} per hour. {name} works {b} hours every day for {c} days. What is {his} pay "
            "in dollars?",
        ),
        (
            "In one day {name} earns {a} * {b} = ${s}.\nIn {c} days {he} earns {s} * {c} = ${t}.",
            "One day pays {a} * {b} = {s} dollars.\n{c} days pay {s} * {c} = {t} dollars.",
        ),
    ),
    Template(
        "change",
        {"a": (2, 9, 12, 1), "b": (2, 12, 45, 1), "c": (50, 200, 500, 10)},
        lambda n: at_least(1, s=n.a * n.b, t=n.c - n.a * n.b),
        (
            "{name} buys {a} {things} for ${b} each and pays with ${c}. How much change does {he} get?",
            "One of the {things} costs ${b}. {name} has ${c} and buys {a} of them. How many dollars are "
            "left?",
        ),
        (
            "The {things} cost {a} * {b} = ${s}.\n{name} gets {c} - {s} = ${t} back.",
            "{name} pays {b} * {a} = {s} dollars.\n{c} - {s} = {t} dollars are left.",
        ),
    ),
    Template(
        "pages",
        {"a": (80, 300, 900, 1), "b": (8, 30, 75, 1), "c": (2, 7, 9, 1)},
        lambda n: at_least(1, s=n.b * n.c, t=n.a - n.b * n.c),
        (
            "A book has {a} pages. {name} reads {b} pages a day for {c} days. How many pages are left?",
            "{name} reads {b} pages each evening. After {c} evenings, how many pages of {his} {a}-page book "
            "has {he} still to read?",
        ),
        (
            "In {c} days {name} reads {b} * {c} = {s} pages.\nThere are {a} - {s} = {t} pages left.",
            "{He} has read {b} * {c} = {s} pages.\n{He} has {a} - {s} = {t} pages to read.",
        ),
    ),
    Template(
        "boxes",
        {"a": (3, 12, 36, 1), "b": (4, 12, 36, 1), "c": (2, 30, 90, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b - n.c),
        (
            "{name} has {a} boxes with {b} {things} in each. {He} gives {c} {things} to {other}. How "
            "many does "
            "{he} have now?",
            "There are {b} {things} in a box and {name} owns {a} boxes. If {he} loses {c} {things}, how "
            "many remain?",
        ),
        (
            "{name} has {a} * {b} = {s} {things}.\nAfter the gift {he} has {s} - {c} = {t} {things}.",
            "The boxes hold {a} * {b} = {s} {things}.\n{s} - {c} = {t} {things} remain.",
        ),
    ),
    Template(
        "share",
        {"a": (2, 9, 24, 1), "b": (4, 24, 48, 1), "c": (2, 9, 9, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b // n.c) if n.a * n.b % n.c == 0 else None,
        (
            "{name} opens {a} bags of {b} {things} and shares them equally among {c} friends. How many "
            "{things} "
            "does each friend get?",
            "{c} children share {a} packs of {things}. Each pack holds {b}. How many {things} does one "
            "child get?",
        ),
        (
            "There are {a} * {b} = {s} {things}.\nEach friend gets {s} / {c} = {t} {things}.",
            "The packs hold {a} * {b} = {s} {things}.\nOne child gets {s} / {c} = {t}.",
        ),
    ),
    Template(
        "ages",
        {"a": (4, 40, 60, 1), "b": (2, 25, 35, 1), "c": (2, 20, 30, 1)},
        lambda n: at_least(1, s=n.a + n.b, t=n.a + n.b + n.c),
        (
            "{name} is {a} years old. {other} is {b} years older. How old will {other} be in {c} years?",
            "{other} was born {b} years before {name}, who is {a} now. What will {other}'s age be after "
            "{c} years?",
        ),
        (
            "{other} is {a} + {b} = {s} years old.\nIn {c} years {other} will be {s} + {c} = {t}.",
            "Now {other} is {a} + {b} = {s}.\nAfter {c} years the age is {s} + {c} = {t}.",
        ),
    ),
    Template(
        "journey",
        {"a": (20, 70, 95, 5), "b": (2, 6, 9, 1), "c": (10, 60, 95, 1), "d": (2, 5, 9, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.c * n.d, u=n.a * n.b + n.c * n.d),
        (
            "{name} drives at {a} miles an hour for {b} hours and then at {c} miles an hour for {d} "
            "hours. How "
            "far does {he} drive?",
            "A train runs {b} hours at {a} miles per hour and {d} hours at {c} miles per hour. How many "
            "miles "
            "does it run?",
        ),
        (
            "First {name} drives {a} * {b} = {s} miles.\nThen {he} drives {c} * {d} = {t} miles.\nIn all "
            "it is "
            "{s} + {t} = {u} miles.",
            "The first part is {b} * {a} = {s} miles.\nThe second part is {d} * {c} = {t} miles.\nThe "
            "train runs "
            "{s} + {t} = {u} miles.",
        ),
    ),
    Template(
        "discount",
        {"a": (20, 300, 900, 1), "b": (10, 50, 90, 5)},
        lambda n: at_least(1, s=n.a * n.b // 100, t=n.a - n.a * n.b // 100) if n.a * n.b % 100 == 0 else None,
        (
            "A coat costs ${a}. {name} gets {b}% off. How much does {he} pay?",
            "The price of a bike was ${a}, but today it is {b}% cheaper. What does {name} pay in dollars?",
        ),
        (
            "The discount is {a} * {b} / 100 = ${s}.\n{name} pays {a} - {s} = ${t}.",
            "Today {name} saves {a} * {b} / 100 = {s} dollars.\n{He} pays {a} - {s} = {t} dollars.",
        ),
    ),
    Template(
        "rows",
        {"a": (3, 12, 40, 1), "b": (4, 15, 40, 1), "c": (5, 60, 200, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b + n.c),
        (
            "{name} plants {a} rows of {b} trees and then {c} more trees near the house. How many trees "
            "are there?",
            "A hall has {a} rows with {b} chairs. {name} brings {c} extra chairs. How many chairs does "
            "the hall "
            "have now?",
        ),
        (
            "The rows have {a} * {b} = {s} trees.\nWith the others there are {s} + {c} = {t} trees.",
            "The rows hold {a} * {b} = {s} chairs.\nNow the hall has {s} + {c} = {t} chairs.",
        ),
    ),
    Template(
        "fence",
        {"a": (5, 60, 400, 1), "b": (4, 50, 400, 1), "c": (2, 5, 9, 1)},
        lambda n: at_least(1, s=n.a + n.b, t=2 * (n.a + n.b), u=2 * (n.a + n.b) * n.c),
        (
            "{name}'s garden is {a} feet long and {b} feet wide. A fence costs ${c} a foot. What does a "
            "fence "
            "around the garden cost?",
        ),
        (
            "Length and width are {a} + {b} = {s} feet.\nThe way around is {s} * 2 = {t} feet.\nThe "
            "fence costs "
            "{t} * {c} = ${u}.",
        ),
    ),
    Template(
        "carpet",
        {"a": (3, 15, 30, 1), "b": (3, 15, 30, 1), "c": (2, 6, 12, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b * n.c),
        (
            "A room is {a} feet by {b} feet. Carpet costs ${c} a square foot. How much does {name} pay "
            "for the room?",
            "{name} paints a wall {a} feet wide and {b} feet high for ${c} per square foot. What does "
            "{he} get?",
        ),
        (
            "The room has {a} * {b} = {s} square feet.\nThe carpet costs {s} * {c} = ${t}.",
            "The wall has {a} * {b} = {s} square feet.\n{name} gets {s} * {c} = ${t}.",
        ),
    ),
    Template(
        "savings",
        {"a": (5, 40, 95, 1), "b": (3, 12, 36, 1), "c": (10, 90, 400, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b - n.c),
        (
            "{name} saves ${a} every week for {b} weeks and then spends ${c} on {things}. How much is left?",
            "After saving ${a} a week for {b} weeks, {name} lends {other} ${c}. How many dollars does "
            "{he} keep?",
        ),
        (
            "{name} saves {a} * {b} = ${s}.\nAfter spending, {s} - {c} = ${t} is left.",
            "{He} saved {a} * {b} = {s} dollars.\n{He} keeps {s} - {c} = {t} dollars.",
        ),
    ),
    Template(
        "collection",
        {"a": (20, 200, 900, 1), "b": (10, 90, 400, 1), "c": (5, 80, 400, 1)},
        lambda n: at_least(1, s=n.a + n.b, t=n.a + n.b - n.c),
        (
            "{name} has {a} {things}. {He} buys {b} more and loses {c}. How many {things} does {he} have?",
            "{name} owned {a} {things}, got {b} from {other} and sold {c} of them. How many are left?",
        ),
        (
            "After buying, {name} has {a} + {b} = {s} {things}.\nAfter losing some, {he} has {s} - {c} = "
            "{t}.",
            "With those from {other} it is {a} + {b} = {s}.\n{s} - {c} = {t} are left.",
        ),
    ),
    Template(
        "teams",
        {"a": (3, 12, 30, 1), "b": (5, 15, 40, 1), "c": (2, 6, 12, 1)},
        lambda n: at_least(1, s=n.b + n.c, t=(n.b + n.c) * n.a),
        (
            "A league has {a} teams. Each team has {b} players and {c} coaches. How many people are in "
            "the league?",
            "{a} buses come to the museum, each with {b} children and {c} teachers. How many people come?",
        ),
        (
            "Each team has {b} + {c} = {s} people.\nThe league has {s} * {a} = {t} people.",
            "A bus brings {b} + {c} = {s} people.\nThe buses bring {s} * {a} = {t} people.",
        ),
    ),
    Template(
        "bus-stops",
        {"a": (15, 60, 300, 1), "b": (3, 30, 150, 1), "c": (3, 30, 150, 1)},
        lambda n: at_least(1, s=n.a - n.b, t=n.a - n.b + n.c),
        (
            "A train has {a} passengers. At the next stop {b} get off and {c} get on. How many "
            "passengers are on it?",
            "{name} has {a} {things} on a shelf. {He} takes {b} away and puts {c} others there. How many "
            "are on "
            "the shelf?",
        ),
        (
            "After some get off there are {a} - {b} = {s} passengers.\nThen there are {s} + {c} = {t} "
            "passengers.",
            "First {a} - {b} = {s} {things} are on the shelf.\nThen it is {s} + {c} = {t}.",
        ),
    ),
    Template(
        "eggs",
        {"a": (12, 60, 200, 1), "b": (2, 20, 60, 1), "c": (2, 6, 9, 1)},
        lambda n: at_least(1, s=n.a - n.b, t=(n.a - n.b) * n.c),
        (
            "{name}'s hens lay {a} eggs. {He} eats {b} and sells the rest for ${c} each. How much does "
            "{he} make?",
            "Of {a} {things}, {name} keeps {b}. {He} sells the others at ${c} apiece. How many dollars "
            "does {he} get?",
        ),
        (
            "{name} sells {a} - {b} = {s} eggs.\n{He} makes {s} * {c} = ${t}.",
            "{He} sells {a} - {b} = {s} {things}.\n{He} gets {s} * {c} = {t} dollars.",
        ),
    ),
    Template(
        "tank",
        {"a": (40, 200, 600, 1), "b": (5, 60, 200, 1), "c": (2, 9, 12, 1)},
        lambda n: at_least(1, s=n.a - n.b, t=(n.a - n.b) // n.c) if (n.a - n.b) % n.c == 0 else None,
        (
            "A tank holds {a} gallons and has {b} gallons in it. A pipe adds {c} gallons a minute. How many "
            "minutes does it take to fill the tank?",
            "{name} needs ${a} and has ${b}. {He} saves ${c} a week. In how many weeks does {he} have "
            "enough?",
        ),
        (
            "The tank needs {a} - {b} = {s} gallons.\nThat takes {s} / {c} = {t} minutes.",
            "{name} still needs {a} - {b} = ${s}.\nThat takes {s} / {c} = {t} weeks.",
        ),
    ),
    Template(
        "difference",
        {"a": (6, 80, 400, 1), "b": (2, 6, 9, 1), "c": (2, 40, 200, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b + n.c, u=n.a * n.b + n.c - n.a),
        (
            "{name} has {a} {things}. {other} has {c} more than {b} times as many. How many more "
            "{things} does "
            "{other} have than {name}?",
        ),
        (
            "{b} times as many is {a} * {b} = {s}.\n{other} has {s} + {c} = {t} {things}.\nThat is {t} - "
            "{a} = {u} "
            "more.",
        ),
    ),
    Template(
        "three-friends",
        {"a": (15, 80, 300, 1), "b": (3, 30, 90, 1), "c": (3, 30, 90, 1)},
        lambda n: at_least(1, s=n.a + n.b, t=n.a + n.b - n.c, u=n.a + n.a + n.b + n.a + n.b - n.c),
        (
            "{name} has {a} {things}. {other} has {b} more than {name}, and {third} has {c} fewer than "
            "{other}. "
            "How many {things} do they have together?",
        ),
        (
            "{other} has {a} + {b} = {s} {things}.\n{third} has {s} - {c} = {t}.\nTogether they have "
            "{a} + {s} + {t} = {u} {things}.",
        ),
    ),
    Template(
        "tickets",
        {"a": (2, 9, 30, 1), "b": (6, 20, 40, 1), "c": (2, 9, 30, 1), "d": (3, 12, 30, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.c * n.d, u=n.a * n.b + n.c * n.d),
        (
            "Tickets are ${b} for adults and ${d} for children. What do {a} adults and {c} children pay?",
            "{name} buys {a} shirts at ${b} and {c} {things} at ${d}. How much does {he} spend?",
        ),
        (
            "The adults pay {a} * {b} = ${s}.\nThe children pay {c} * {d} = ${t}.\nThey pay {s} + {t} = "
            "${u}.",
            "The shirts cost {a} * {b} = ${s}.\nThe {things} cost {c} * {d} = ${t}.\n{name} spends {s} + "
            "{t} = ${u}.",
        ),
    ),
    Template(
        "dozens",
        {"a": (2, 9, 40, 1), "b": (3, 20, 60, 1), "c": (1, 9, 30, 1)},
        lambda n: at_least(1, s=n.a * 12, t=n.a * 12 - n.b, u=n.a * 12 - n.b - n.c),
        ("{name} buys {a} dozen eggs, uses {b} for a cake and drops {c}. How many eggs are left?",),
        (
            "{a} dozen are {a} * 12 = {s} eggs.\nAfter the cake there are {s} - {b} = {t}.\n{t} - {c} = "
            "{u} eggs "
            "are left.",
        ),
    ),
    Template(
        "practice",
        {"a": (10, 60, 90, 5), "b": (2, 6, 9, 1), "c": (5, 90, 200, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b + n.c),
        (
            "{name} practices {a} minutes a day for {b} days and {c} minutes on Sunday. How many minutes "
            "is that?",
            "{name} swims {a} laps on each of {b} days and {c} laps on the last day. How many laps does "
            "{he} swim?",
        ),
        (
            "On {b} days {name} practices {a} * {b} = {s} minutes.\nWith Sunday it is {s} + {c} = {t} "
            "minutes.",
            "First {he} swims {a} * {b} = {s} laps.\nIn all {he} swims {s} + {c} = {t} laps.",
        ),
    ),
    Template(
        "doubling",
        {"a": (6, 60, 300, 1), "b": (3, 50, 200, 1)},
        lambda n: at_least(1, s=n.a * 2, t=n.a * 4, u=n.a * 4 - n.b),
        (
            "{name} has {a} {things}. The number doubles on Monday and doubles again on Tuesday. Then "
            "{he} gives "
            "away {b}. How many are left?",
        ),
        (
            "On Monday it is {a} * 2 = {s}.\nOn Tuesday it is {s} * 2 = {t}.\nThen {t} - {b} = {u} "
            "{things} are left.",
        ),
    ),
    Template(
        "fraction",
        {"a": (12, 200, 900, 1), "b": (2, 6, 9, 1), "c": (2, 30, 90, 1)},
        lambda n: (
            at_least(1, s=n.a // n.b, t=n.a - n.a // n.b, u=n.a - n.a // n.b - n.c)
            if n.a % n.b == 0
            else None
        ),
        (
            "A school has {a} pupils. One out of {b} walks and the others ride a bus, but {c} of those "
            "are sick "
            "today. How many ride the bus today?",
            "{name} had {a} {things}. {He} gave 1/{b} of them to {other} and then lost {c}. How many has "
            "{he} now?",
        ),
        (
            "{a} / {b} = {s} pupils walk.\n{a} - {s} = {t} ride the bus.\nToday it is {t} - {c} = {u}.",
            "{other} got {a} / {b} = {s}.\nThen {name} had {a} - {s} = {t}.\nNow {he} has {t} - {c} = "
            "{u} {things}.",
        ),
    ),
    Template(
        "rent",
        {"a": (12, 90, 400, 1), "b": (2, 9, 12, 1), "c": (10, 90, 400, 1)},
        lambda n: at_least(1, s=n.a * n.b, t=n.a * n.b + n.c),
        (
            "{name} rents a boat for ${a} a day and keeps it {b} days. There is also a fee of ${c}. What "
            "does "
            "{he} pay?",
            "Renting a hall costs ${c} plus ${a} per hour. How many dollars do {b} hours cost?",
        ),
        (
            "{b} days cost {a} * {b} = ${s}.\nWith the fee {name} pays {s} + {c} = ${t}.",
            "{b} hours cost {a} * {b} = {s} dollars.\nAltogether it is {s} + {c} = {t} dollars.",
        ),
    ),
)
