# ruff: noqa: E501 -- a sentence is easier to read and to mend on one line
"""Scenes of a tale on the way: weather, roads, rivers, nights."""

from __future__ import annotations

from flows.sample.prose import a, cap, num
from flows.sample.teller import Teller


def weather(s: Teller) -> list[str]:
    t, river = s.here, s.here.river.name
    return [
        s.say(
            "sky",
            (
                f"A thin rain had been falling over {t.name} since dawn.",
                f"The morning was clear, and the {river} lay as still as a plate.",
                f"Fog had come up from the {river} in the night, and the roofs of {t.name} seemed to float on it.",
                "A cold wind blew from the hills and rattled every shutter in the street.",
                "It was one of those warm evenings on which nobody wants to go indoors.",
                f"Snow lay on the roofs of {t.name}, and the smoke rose straight up.",
                "Thunder had been grumbling behind the hills all afternoon.",
                "The sun came out for the first time in eleven days.",
            ),
        )
        + " "
        + s.say(
            "sky2",
            (
                "Dogs slept in the doorways, and somewhere a child was practising the same four notes.",
                "The bakers had already opened, and the smell of bread went from house to house.",
                "A cart with one lame wheel was making its way across the square.",
                "Two old women stood at the well and watched everything that moved.",
                "Nobody was about but a boy with a goose under his arm.",
                "From the yards came the sound of hammers, slow at first, and then all together.",
            ),
        )
        + " "
        + s.say(
            "sky3",
            (
                f"{s.hero.given} stood at the window and thought of {s.thing}.",
                f'"We ought to be going," said {s.friend.given}, and did not move.',
                f"{s.hero.given} pulled {s.hero.hers} coat tighter and walked on.",
                f"{s.friend.given} was already awake, and in a bad temper.",
                f"It was a good day for beginning something, thought {s.hero.given}.",
            ),
        ),
    ]


def arrival(s: Teller) -> list[str]:
    t = s.here
    return [
        s.say(
            "arrive",
            (
                f"They came to {t.name} a little before noon.",
                f"{t.name} appeared quite suddenly behind a row of poplars.",
                f"It was dark when they reached the gate of {t.name}, and the keeper had to be woken.",
                f"From the last hill they could see the whole of {t.name} at once.",
            ),
        )
        + " "
        + s.say(
            "arrive2",
            (
                f"It was {a(t.sort)}, with {num(t.population // 40)} chimneys, if {s.friend.given} had counted rightly.",
                f"{s.hero.given} had heard of its {t.trade.wares} all {s.hero.hers} life, and now they hung in every window.",
                f"Everybody in it seemed to be {a(t.trade.worker)}, or the child of one.",
                f"The streets were narrow and smelled of {t.trade.material}.",
            ),
        )
        + " "
        + s.say(
            "arrive3",
            (
                "Nobody greeted them, but every curtain moved.",
                "A girl ran ahead of them and announced that there were strangers.",
                "They asked for a bed at the first door, and were sent to the second.",
                '"If you have come to buy," a woman called down to them, "you have come too late."',
            ),
        ),
    ]


def road(s: Teller) -> list[str]:
    h, f = s.hero, s.friend
    return [
        s.say(
            "road",
            (
                f"The road to {s.there.name} followed the {s.here.river.name} for an hour and then lost patience and climbed the hill.",
                f"They left {s.here.name} by the northern gate and walked without speaking.",
                f"It was a day's walk to {s.there.name}, and they had started late.",
                f"Between {s.here.name} and {s.there.name} there was only one house, and it had no door.",
                f"A carter took them half of the way to {s.there.name} and talked about his teeth.",
            ),
        )
        + " "
        + s.say(
            "road2",
            (
                f"{f.given} limped a little and said that it was nothing.",
                f"{h.given} counted the milestones, because it kept {h.her} from counting the days.",
                "A hare sat down in the middle of the path and looked at them for a long time.",
                "At every bend there was another bend.",
                f"They ate the last of the bread under a tree, and {f.given} gave the crust to the birds.",
            ),
        ),
        *s.say(
            "road3",
            (
                f'"Tell me again what you will do when you find it," said {f.given}.|"I shall know when I see it," {h.given} answered, and that was all that could be got out of {h.her}.',
                f'"Do you think that {s.rival.given} came this way?" asked {f.given}.|{h.given} did not reply. {h.She} was looking at the road, where there were fresh marks of wheels.',
                f'"In my family," said {f.given}, "nobody has ever walked so far for so little."|{h.given} laughed for the first time in days. "In mine," {h.she} said, "nobody has ever walked."',
                f'"You are walking too fast," said {f.given}.|"And you are talking too much," said {h.given}, but {h.she} waited all the same.',
                f'"What is there to see in {s.there.name}?" asked {f.given}.|"{cap(s.there.trade.wares)}," said {h.given}. "And rain, I think."',
            ),
        ).split("|"),
    ]


def river(s: Teller) -> list[str]:
    r, h, f = s.here.river, s.hero, s.friend
    return [
        s.say(
            "river",
            (
                f"There was no bridge, only a rope, a raft and a ferryman who called himself the king of the {r.name}.",
                f"The {r.name} was high, and its {r.colour} water carried branches, straw and once a whole hen house.",
                f"At the landing they waited for an hour, while the {r.name} went by as if it had somewhere to be.",
            ),
        ),
        *s.say(
            "river2",
            (
                f'"Two coppers each," said the ferryman. "And one for the river."|"For the river?" asked {f.given}. "What does a river buy?"|"It has never told me," said the ferryman, and threw the coin into the water.',
                f'"I do not cross after sunset," said the ferryman, looking at the sun, which had just set.|"We must be in {s.there.name} by morning," said {h.given}, and laid a third coin beside the other two.|The ferryman looked at the coins, and then at the sky. "It may be that I am wrong about the sunset," he said.',
                f'"Can you swim?" asked the ferryman. It did not sound like a joke.|"Why should we have to swim?" asked {f.given}, but {h.given} had already stepped on to the raft.',
            ),
        ).split("|"),
        s.say(
            "river4",
            (
                "In the middle of the stream the rope began to sing. Nobody spoke until they felt the ground under them.",
                f"Half-way across, {f.given} lost a shoe, and it floated away like a small proud ship.",
                f'"My father drowned here, and his father too," the ferryman told them cheerfully, "but they were both from {s.there.name}."',
            ),
        ),
    ]


def night(s: Teller) -> list[str]:
    h, f = s.hero, s.friend
    return [
        s.say(
            "night",
            (
                f"{h.given} could not sleep that night.",
                f"In the middle of the night {h.given} woke and knew at once that something was wrong.",
                "The moon had gone behind the hill, and it was as dark as the inside of a boot.",
                f"Long after midnight {h.given} was still sitting by the window.",
            ),
        )
        + " "
        + s.say(
            "night2",
            (
                f"{h.given} thought of {h.birthplace.name}, where {h.she} had been a child, and of the {h.birthplace.river.name} under the bridge.",
                f"{h.given} remembered how {s.thing} had been made: four winters of work, and then one evening on which there was nothing left to do.",
                f"People said that {h.given} was {h.trait}. Perhaps they were right, {h.she} thought, and perhaps it did not matter.",
                f"Out in the street someone was walking up and down, up and down, and {h.given} counted the steps.",
            ),
        ),
        *s.say(
            "night3",
            (
                f'"Are you awake?" asked {f.given} in the dark.|"No," said {h.given}, and in spite of everything they both laughed.',
                f"An owl called from the roof, twice, and was answered from across the river. Then {f.given} began to snore, and the fear went away.",
                f"Somewhere below, a door was opened and shut again, very carefully. {h.given} went down the stairs, one step at a time. There was nobody in the yard, but the gate stood open, and it had been closed before.",
                f'"What will you say to {s.rival.her}?" asked {f.given}, who had not been asleep either.|"Nothing," said {h.given}. "I shall give {s.rival.her} back the glove."',
            ),
        ).split("|"),
    ]


def quarrel(s: Teller) -> list[str]:
    h, f = s.hero, s.friend
    row = s.say(
        "row",
        (
            f'"I am going home," said {f.given}.|{h.given} stopped. "Then go," {h.she} said. "Nobody asked you to come." It was not true, and they both knew it.',
            f'"You never told me that {s.rival.given} was once your friend," said {f.given}.|"You did not ask," said {h.given}.',
            f'{f.given} sat down on a stone. "Not another step," {f.she} said.|{h.given} said something that {h.she} was to regret for a long time.',
            f'"It is only a thing," said {f.given}. "You could make another."|"Could you make another {f.birthplace.name}?" {h.given} asked. "Could you be born again somewhere else, and would it be the same?"',
        ),
    )
    end = s.say(
        "row3",
        (
            "They walked on, ten steps apart, until it began to rain and there was only one coat.",
            f"For a while there was no sound but the wind. Then {f.given} picked up both bags and went ahead.",
            f"In the end it was {f.given} who laughed first, because {f.she} could never be angry on an empty stomach.",
            "After that they did not speak until supper. In the morning nothing more was said about it.",
        ),
    )
    return [*row.split("|"), end]
