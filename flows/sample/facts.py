"""What the sample world's people know: trades, beasts, dishes, weather. Plain tables of words."""

from __future__ import annotations

from typing import NamedTuple


class Trade(NamedTuple):
    """A craft and the words that belong to it. The steps are verb phrases (`sort the wool`)."""

    gerund: str
    worker: str
    workers: str
    material: str
    ware: str
    wares: str
    tool: str
    place: str
    first: str
    then: str
    last: str


def _trades(table: str) -> tuple[Trade, ...]:
    rows = (row.split("|") for row in table.strip().splitlines())
    return tuple(Trade(*(cell.strip() for cell in row)) for row in rows)


TRADES = _trades("""
weaving|weaver|weavers|wool|tapestry|tapestries|loom|weaving shed|sort the fleeces|spin the yarn|set the warp
glass-blowing|glass-blower|glass-blowers|white sand|window|windows|blowpipe|glasshouse|sift the sand|gather the melt|turn the cooling glass
bell-founding|bell-founder|bell-founders|bronze|bell|bells|crucible|foundry|build the mould|pour the metal|tune the rim
clock-making|clockmaker|clockmakers|brass|clock|clocks|file|workshop|cut the wheels|polish the pivots|set the escapement
paper-making|papermaker|papermakers|linen rags|paper screen|paper screens|mould|paper mill|sort the rags|beat the pulp|press the sheets
pottery|potter|potters|red clay|jar|jars|wheel|kiln yard|knead the clay|throw the pots|watch the kiln
boat-building|boatbuilder|boatbuilders|oak|barge|barges|adze|boatyard|choose the timber|bend the planks|caulk the seams
dyeing|dyer|dyers|madder root|banner|banners|vat|dye house|crush the roots|heat the vats|rinse the cloth
bookbinding|bookbinder|bookbinders|calfskin|almanac|almanacs|sewing frame|bindery|fold the sheets|sew the sections|gild the spine
lace-making|lacemaker|lacemakers|flax thread|veil|veils|lace pillow|lace school|wind the bobbins|prick the pattern|cross the threads
salt-boiling|salt-boiler|salt-boilers|brine|salt pan|salt pans|rake|boiling house|draw the brine|tend the fires|rake the crystals
rope-making|ropemaker|ropemakers|hemp|cable|cables|spinning hook|ropewalk|comb the hemp|spin the yarns|lay the strands
map engraving|map engraver|map engravers|copper|map|maps|burin|print room|grind the plates|cut the coastlines|pull the first proofs
bee-keeping|bee-keeper|bee-keepers|wax|hive|hives|smoker|bee garden|plait the skeps|calm the swarm|cut the combs
stone-carving|stone-carver|stone-carvers|limestone|fountain|fountains|chisel|stone yard|split the blocks|draw the outline|smooth the edges
tile-making|tile-maker|tile-makers|blue glaze|stove|stoves|tile frame|tilery|dig the clay|paint the tiles|stack the oven
""")  # noqa: E501

DIRECTIONS = ("north", "south", "east", "west", "north-east", "north-west", "south-east")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
SEASONS = ("spring", "summer", "autumn", "winter")
NUMBERS = (
    "no", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip

TERRAINS = (
    ("hilly", "steep hills and narrow valleys", "stone and wool"),
    ("coastal", "low cliffs and wide bays", "salt and dried fish"),
    ("forested", "oak forests and quiet clearings", "timber and honey"),
    ("marshy", "reed beds and shallow lakes", "reeds and eels"),
    ("mountainous", "high passes and cold meadows", "cheese and copper"),
    ("flat", "broad plains and slow canals", "barley and flax"),
)
TOWN_KINDS = ("market town", "mill town", "river town", "harbour town", "hill town", "bridge town")
TRAITS = (
    "patient", "quick-tempered", "careful", "generous", "stubborn", "shy",
    "cheerful", "proud", "curious", "silent", "thrifty", "fearless",
)  # fmt: skip
HABITS = (
    "kept a diary in a small red book", "rose before dawn every day of the year",
    "walked to the river each evening", "never wore any colour but grey",
    "fed the pigeons of the market square", "wrote letters to half the region",
    "whistled while working", "collected old keys", "refused to ride in a carriage",
    "drank nothing but well water", "played chess with the ferryman",
    "carried a lantern even by day",
)  # fmt: skip
ADJECTIVES = (
    "Winter", "Blue", "Long", "Silver", "Harvest", "Old", "Silent", "Golden",
    "Crooked", "Green", "Morning", "Great",
)  # fmt: skip
STONES = ("grey granite", "yellow sandstone", "red brick", "white limestone", "dark slate")
WOODS = ("pear wood", "black ash", "cherry wood", "old maple", "river willow", "yew")
COLOURS = ("grey", "brown", "white", "black", "russet", "golden", "blue", "green")
FOODS = (
    "barley", "smoked eel", "chestnuts", "goat cheese", "wild garlic", "dried plums",
    "buckwheat", "honey", "river trout", "pickled beans", "walnuts", "sour cream",
)  # fmt: skip
CARGOES = ("salt", "timber", "barley", "cloth", "roof tiles", "wine", "copper", "dried fish")
BUILDING_KINDS = (
    "bridge", "mill", "tower", "library", "lighthouse", "abbey", "hall", "theatre", "granary",
    "observatory",
)  # fmt: skip
SHIP_KINDS = ("barge", "ferry", "schooner", "brig", "lugger", "cutter")
BEASTS = (
    ("heron", "bird", "the reed beds", "small fish and frogs"),
    ("hare", "mammal", "the high meadows", "clover and bark"),
    ("otter", "mammal", "the river banks", "trout and crayfish"),
    ("owl", "bird", "the old barns", "mice and beetles"),
    ("newt", "amphibian", "the shallow ponds", "worms and water fleas"),
    ("bee", "insect", "the heath", "the nectar of heather"),
    ("goat", "mammal", "the bare slopes", "thistles and moss"),
    ("finch", "bird", "the orchards", "seeds and buds"),
)
INSTRUMENT_KINDS = (
    ("stringed instrument", "bow", "strings", "warm and a little hoarse"),
    ("wind instrument", "reed", "finger holes", "bright and far-carrying"),
    ("drum", "pair of sticks", "brass rings", "deep and dry"),
    ("keyed instrument", "crank", "keys", "thin and sweet"),
)
WORK_KINDS = ("novel", "chronicle", "herbal", "song cycle", "travel book", "play")
GENRES = {
    "novel": "reader", "chronicle": "historian", "herbal": "physician",
    "song cycle": "singer", "travel book": "traveller", "play": "actor",
}  # fmt: skip
WORK_NOUNS = ("Road", "House", "Lantern", "Bridge", "Orchard", "Ferry", "Garden", "Bell", "Well")
SHIP_NOUNS = (
    "Heron",
    "Swallow",
    "Lady",
    "Star",
    "Otter",
    "Lantern",
    "Pilgrim",
    "Arrow",
    "Daughter",
)
FESTIVAL_NOUNS = ("Lantern Night", "Ferry Day", "First Bread", "Candle Walk", "Rope Dance",
                  "Bell Week", "Apple Fair", "Long Table")  # fmt: skip


class Disaster(NamedTuple):
    """A kind of event; `what` has an article, `cause` and `harm` are clauses in the past tense."""

    noun: str
    what: str
    cause: str
    harm: str
    effort: str
    outcome: str


def _disasters(table: str) -> tuple[Disaster, ...]:
    rows = (row.split("|") for row in table.strip().splitlines())
    return tuple(Disaster(*(cell.strip() for cell in row)) for row in rows)


EVENT_KINDS = _disasters("""
Flood|a flood|a warm wind melted the snow in two days|the water stood in the lower streets|carried old people out of their houses by boat|the river was given higher banks
Fire|a great fire|a lamp fell over in a hay loft|whole rows of wooden houses burned|formed a chain of buckets from the river|the council forbade roofs of straw
Frost|a long frost|no wind came from the south for weeks|the river froze and the mills stood still|shared out the grain of the storehouses|a public granary was set up
Siege|a siege|a quarrel over bridge tolls was never settled|no cart could enter the gates|held the eastern gate at night|the tolls were abolished
Strike|a strike of the workshops|the merchants lowered the price of finished work|the market stood empty|spoke for the workshops before the council|a fixed price was written into the town book
Council|a great council|three towns claimed the same meadows|trade had stopped on the roads|drew the map that all sides accepted|the meadows were shared by the three towns
Drought|a drought|no rain fell between April and September|the wells ran dry one after another|led the search for a new spring|a stone aqueduct was built
Storm|a storm|the sky turned yellow at noon|half the roofs were torn off|kept a fire burning to guide the boats home|a storm bell was hung in the tower
""")  # noqa: E501
