# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Scenes of a tale among people: inns, markets, workshops, guild halls."""

from __future__ import annotations

from flows.sample.entities import Event, Guild
from flows.sample.prose import a, cap, num
from flows.sample.teller import Teller


def meal(s: Teller) -> list[str]:
    dish = s.d.pick(s.region.dishes)
    first, second, _ = dish.foods
    return [
        s.say(
            "inn",
            (
                f"The inn was called the {s.d.pick(('Blue Heron', 'Two Keys', 'Old Anchor', 'Dry Well'))}, and it was full.",
                "There was one table free, beside the stove, and they took it before anyone could object.",
                "The landlord wiped the table with his sleeve and asked what they could pay.",
                f"At the inn they were given {dish.name}, because there was nothing else.",
            ),
        )
        + " "
        + s.say(
            "inn2",
            (
                f"The {dish.name} was hot and thick, with {first} and {second} in it, just as it is made at {dish.festival.name}.",
                f"{s.friend.given} ate two bowls of {dish.name} without looking up.",
                f'"More {first}," said {s.friend.given}, "and less {second}, and one might call it {dish.name}."',
                f"Over a bowl of {dish.name} the world looked better.",
            ),
        ),
        s.say(
            "inn3",
            (
                f"In the corner somebody played the {s.d.pick(s.region.instruments).name}, softly, as if for one listener only.",
                "At the next table four men were arguing about a cow.",
                f"A picture of the {s.d.pick(s.region.animals).name} hung over the stove, so smoky that only the eyes could be seen.",
            ),
        )
        + " "
        + s.say(
            "inn4",
            (
                f"When {s.hero.given} asked about {s.thing}, the whole room became silent.",
                f"{s.hero.given} listened with one ear to the music and with the other to the door.",
                "Later, when the lamps had been put out, they could still hear voices below.",
            ),
        ),
    ]


def ask(s: Teller) -> list[str]:
    p, h, v = s.stranger(), s.hero, s.rival
    met = s.say(
        "meet",
        (
            f"They found {p.name}, the {p.occupation}, sitting in front of {p.hers} house.",
            f'"You must ask {p.name}," they were told. "If {p.she} does not know, then nobody does."',
            f"{p.name} was {a(p.occupation)} and, as everyone had warned them, {p.trait}.",
            f"The first person to speak kindly to them was {p.name}, {a(p.occupation)} from {p.birthplace.name}.",
        ),
    )
    talk = s.say(
        "talk",
        (
            f'"We are looking for {s.thing}," said {h.given}. "Have you seen it?"|"I have seen many things," said {p.given}, "but not that. Go to {s.there.name}, and ask for the {s.there.trade.workers}."',
            f'"Has anyone come through here with a large box?" asked {h.given}.|{p.given} thought about it. "Three days ago," {p.she} said at last, "a cart went down to {s.there.name}. It was covered with grey cloth, and the driver would not stop."',
            f'"Do you know {v.name}?" {h.given} asked without any greeting.|"{v.given}?" {p.given} put down {p.hers} cup. "{v.She} owes me for two nights and a supper. If you find {v.her}, tell {v.her} that I have not forgotten."',
            f'{h.given} described {s.thing} as well as {h.she} could.|"Come in," said {p.given}, and {p.she} shut the door behind them. "One does not talk of such things in the street. It was here, last week, on that very table, and now it is on its way to {s.there.name}."',
        ),
    )
    thanks = s.say(
        "thanks",
        (
            f"They thanked {p.her}. As they left, {s.friend.given} heard from the neighbours that {p.she} {p.habit}.",
            f'"Can we trust {p.her}?" whispered {s.friend.given}. "Have we a choice?" said {h.given}.',
            f"{h.given} gave {p.her} a silver coin, which {p.she} looked at on both sides.",
            f'"And what will you give me for it?" {p.given} called after them, but {p.she} was smiling.',
        ),
    )
    return [met, *talk.split("|"), thanks]


def story(s: Teller) -> list[str]:
    e: Event = s.d.pick(s.region.events)
    teller = s.stranger()
    return [
        s.say(
            "tale",
            (
                f"That evening {teller.given} told them about the {e.facts.noun.lower()} of {e.year}.",
                f'"You are too young to remember the {e.facts.noun.lower()} of {e.year}," said {teller.given}, and {teller.she} filled {teller.hers} pipe.',
                f"On the wall there was a mark, and {teller.given} explained what it meant.",
            ),
        ),
        f'"It was in {e.town.name}," {teller.she} said. '
        + s.say(
            "tale2",
            (
                f'"First we heard that {e.facts.cause}. We did not believe it. Then {e.facts.harm}, and we believed it."',
                f'"It began when {e.facts.cause}, and it lasted {num(e.days)} days. Before the end {e.facts.harm}."',
            ),
        ),
        s.say(
            "tale3",
            (
                f'"And who helped you?" asked {s.friend.given}.',
                f'"What did the people do?" {s.hero.given} wanted to know.',
                f'"Somebody must have done something," said {s.friend.given}.',
            ),
        ),
        f'"{e.hero.given} {e.hero.surname} did," said {teller.given}. "{e.hero.She} {e.facts.effort}. '
        + s.say(
            "tale4",
            (
                f'Afterwards {e.facts.outcome}. That is how it was, whatever they tell you in {s.region.capital_town.name}."',
                f'When it was over, {e.facts.outcome}, and on that day every year we still put a candle in the window."',
                f'My mother saw it with her own eyes. And {e.facts.outcome}, as you can see."',
            ),
        ),
    ]


def work(s: Teller) -> list[str]:
    k, h = s.here.trade, s.hero
    return [
        s.say(
            "work",
            (
                f"Since they had no money left, {h.given} offered to work for a day in {a(k.place)}.",
                f"The {k.workers} of {s.here.name} needed another pair of hands, and asked no questions.",
                f'"You want a bed?" said the master. "Then show me that you can {k.first}."',
            ),
        )
        + " "
        + s.say(
            "work2",
            (
                f"In the morning {h.she} learned to {k.first}, and by noon {h.hers} arms would not obey {h.her}.",
                f"It looks simple to {k.then}, but {h.given} burned two fingers and broke {a(k.tool)}.",
                f"{h.She} watched how the old ones went about it: they would {k.first}, {k.then} and {k.last}, all without a word.",
            ),
        ),
        s.say(
            "work3",
            (
                f'"Not bad for a stranger," said the master, and turned one of the {k.wares} in the light.',
                f'"Who taught you to hold {a(k.tool)} like that?" asked the master, and {h.given} became red.',
                "When the bell rang, they sat down on the floor and shared out bread and onions.",
            ),
        )
        + " "
        + s.say(
            "work4",
            (
                f"On the bench {h.she} found a scrap of paper with a drawing of {s.thing}.",
                f"One of the apprentices had seen {s.rival.given}, two days before, on the road to {s.there.name}.",
                f"It was good to think of nothing but {k.material} for a whole day.",
            ),
        ),
    ]


def market(s: Teller) -> list[str]:
    t, h = s.here, s.hero
    price = s.d.between(6, 40)
    scene = s.say(
        "market",
        (
            f"The market of {t.name} filled the whole square.",
            f"It was market day, and half of {s.region.name} seemed to have come to {t.name}.",
            "They had to push their way between baskets, geese and elbows.",
        ),
    )
    goods = s.say(
        "market2",
        (
            f"There were {t.trade.wares} of every size, and between them cheese, rope, ribbons and a dentist.",
            f"A man was selling a cure for everything, and a woman beside him sold {t.trade.wares}.",
        ),
    )
    talk = s.say(
        "price",
        (
            f'"For you? {cap(num(price))} silver pieces," said the woman.|"I could build a house for that," said {s.friend.given}.|They agreed on half, and everybody who had been listening went away disappointed.',
            f'"It is not for sale," said the woman. "But if it were, it would be {num(price)}."|{h.given} turned it over, and there, on the underside, was {s.rival.given}\'s mark. "Who sold you this?" {h.she} asked, and {h.hers} voice was not quite steady.|"I never ask for names," said the woman, "and at that price nobody tells them."',
            f'"{cap(num(price))}," said the boy, and looked at his mother, who shook her head. "{cap(num(price + 2))}."|"{cap(num(price // 2))}," said {h.given}, "and not one more."|At that moment the bell rang, and the stalls were closed as if by one hand.',
        ),
    )
    return [
        f"{scene} {goods}",
        f'"How much is this?" asked {h.given}, and {h.she} pointed at {a(t.trade.ware)}.',
        *talk.split("|"),
    ]


def rumour(s: Teller) -> list[str]:
    v, h = s.rival, s.hero
    who = s.say(
        "rival2",
        (
            f"{v.She} was {a(v.occupation)} from {v.birthplace.name}, {v.trait} and clever, and it was known that {v.she} {v.habit}.",
            f"They had learned together, long ago, and {v.given} had always been the better one until {s.thing} was finished.",
        ),
    )
    return s.say(
        "rival",
        (
            f'{v.name} had been in {s.here.name}; there could be no doubt of it. {who}|"{v.She} has paid for everything in new silver," the landlord said, "and {v.she} asked for two rooms, one of them for a box."|{h.given} said nothing. {h.She} only asked which road {v.given} had taken.',
            f'On the other side of the street stood a figure in a long coat, and {h.given} knew at once that it was {v.name}. {who}|"After {v.her}!" cried {s.friend.given}, but the street was already empty. A door closed, a horse neighed, and then there was only the rain in the gutters.',
            f'A letter was waiting for {h.given}. There was no name under it, but {h.she} knew the hand of {v.name}. {who}|"If you follow me any farther," {h.given} read aloud, "you will be sorry, and so shall I."|"Then we shall all three be sorry," said {s.friend.given}, "and at least we shall be sorry together."',
        ),
    ).split("|")


def hall(s: Teller) -> list[str]:
    local = [guild for guild in s.region.guilds if guild.town is s.here]
    g: Guild = local[0] if local else s.d.pick(s.region.guilds)
    room = (
        f"in the {g.hall.name}"
        if local
        else f"in the town hall of {s.here.name}, to which they had been invited"
    )
    return [
        s.say(
            "hall",
            (
                f"The {g.name} met {room}, under {a(g.colour)} banner with the words _{g.motto}_.",
                f"They were brought before the masters of the {g.name}, who sat at a long table {room}.",
            ),
        )
        + " "
        + s.say(
            "hall2",
            (
                f"One chair was empty: it had belonged to {g.founder.name}, who had founded the guild in {g.founded}.",
                f'The words on the wall meant "{g.meaning}", and the masters looked as if they believed it.',
                "Twelve candles burned on the table, and twelve faces looked up.",
            ),
        ),
        f'"You say that {s.thing} is yours," said the oldest of the {g.trade.workers}. "Can you prove it?"',
        s.say(
            "proof",
            (
                f'"Inside it," said {s.hero.given}, "there is a line that nobody has ever seen. I can tell you what it says."',
                f'"Ask {s.rival.name}," said {s.hero.given}. "{s.rival.She} has been many things, but never a liar."',
                f"{s.hero.given} held out {s.hero.hers} hands, and they saw the scars.",
            ),
        ),
        s.say(
            "proof2",
            (
                "There was a long silence. Then the oldest one stood up, which had not happened for years.",
                "The masters put their heads together, and the candles shook.",
                '"We shall see," said the old woman at the end of the table, and for the first time she smiled.',
            ),
        ),
    ]
