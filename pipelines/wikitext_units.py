"""Units of measurement as `{{convert}}` and `{{cvt}}` of English Wikipedia name them."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """How one unit is written."""

    singular: str
    plural: str
    symbol: str


# code: singular / plural / symbol; a code that is its own symbol leaves the last out.
_UNITS = """
m: metre/metres | km: kilometre/kilometres | cm: centimetre/centimetres
mm: millimetre/millimetres | um: micrometre/micrometres/μm | μm: micrometre/micrometres
nm: nanometre/nanometres | ft: foot/feet | in: inch/inches | yd: yard/yards | mi: mile/miles
nmi: nautical mile/nautical miles | furlong: furlong/furlongs | fathom: fathom/fathoms
ly: light-year/light-years | AU: AU/AU | pc: parsec/parsecs | chain: chain/chains
rod: rod/rods | league: league/leagues | m2: square metre/square metres/m²
km2: square kilometre/square kilometres/km² | cm2: square centimetre/square centimetres/cm²
mm2: square millimetre/square millimetres/mm² | ha: hectare/hectares | acre: acre/acres
sqmi: square mile/square miles/sq mi | sqft: square foot/square feet/sq ft
sqin: square inch/square inches/sq in | sqyd: square yard/square yards/sq yd
sqkm: square kilometre/square kilometres/km² | m3: cubic metre/cubic metres/m³
km3: cubic kilometre/cubic kilometres/km³ | cm3: cubic centimetre/cubic centimetres/cm³
cc: cubic centimetre/cubic centimetres | cuft: cubic foot/cubic feet/cu ft
cuin: cubic inch/cubic inches/cu in | cuyd: cubic yard/cubic yards/cu yd
cumi: cubic mile/cubic miles/cu mi | l: litre/litres | L: litre/litres
ml: millilitre/millilitres | mL: millilitre/millilitres | cl: centilitre/centilitres
hl: hectolitre/hectolitres | gal: gallon/gallons | USgal: US gallon/US gallons/US gal
impgal: imperial gallon/imperial gallons/imp gal | USqt: US quart/US quarts | qt: quart/quarts
pt: pint/pints | USpt: US pint/US pints | imppt: imperial pint/imperial pints
oilbbl: barrel/barrels/bbl | USoz: US fluid ounce/US fluid ounces
impoz: imperial fluid ounce/imperial fluid ounces | USfloz: US fluid ounce/US fluid ounces
acre.ft: acre-foot/acre-feet | acre-ft: acre-foot/acre-feet | bu: bushel/bushels
kg: kilogram/kilograms | g: gram/grams | mg: milligram/milligrams | t: tonne/tonnes
lb: pound/pounds | oz: ounce/ounces | st: stone/stone | ST: short ton/short tons
LT: long ton/long tons | ton: ton/tons | lbs: pound/pounds/lb | MT: metric ton/metric tons
tonne: tonne/tonnes/t | cwt: hundredweight/hundredweight | C: degree Celsius/degrees Celsius/°C
F: degree Fahrenheit/degrees Fahrenheit/°F | K: kelvin/kelvins
C-change: degree Celsius/degrees Celsius/°C | F-change: degree Fahrenheit/degrees Fahrenheit/°F
km/h: kilometre per hour/kilometres per hour | kph: kilometre per hour/kilometres per hour/km/h
kmph: kilometre per hour/kilometres per hour/km/h | mph: mile per hour/miles per hour
m/s: metre per second/metres per second | km/s: kilometre per second/kilometres per second
ft/s: foot per second/feet per second | kn: knot/knots | kt: knot/knots/kn
mi/h: mile per hour/miles per hour | kW: kilowatt/kilowatts | MW: megawatt/megawatts
W: watt/watts | hp: horsepower/horsepower | bhp: brake horsepower/brake horsepower | PS: PS/PS
shp: shaft horsepower/shaft horsepower | ihp: indicated horsepower/indicated horsepower
GW: gigawatt/gigawatts | Nm: newton metre/newton metres/N⋅m | lbft: pound-foot/pound-feet/lb⋅ft
N: newton/newtons | kN: kilonewton/kilonewtons | lbf: pound-force/pounds-force
kgf: kilogram-force/kilograms-force | Pa: pascal/pascals | kPa: kilopascal/kilopascals
MPa: megapascal/megapascals | hPa: hectopascal/hectopascals | bar: bar/bars
psi: pound per square inch/pounds per square inch | atm: atmosphere/atmospheres
mbar: millibar/millibars | inHg: inch of mercury/inches of mercury
mmHg: millimetre of mercury/millimetres of mercury | J: joule/joules | kJ: kilojoule/kilojoules
MJ: megajoule/megajoules | kcal: kilocalorie/kilocalories | kWh: kilowatt-hour/kilowatt-hours
eV: electronvolt/electronvolts | cal: calorie/calories
/km2: per square kilometre/per square kilometres//km²
/sqmi: per square mile/per square mile//sq mi
PD/km2: inhabitant per square kilometre/inhabitants per square kilometre//km²
PD/sqmi: inhabitant per square mile/inhabitants per square mile//sq mi
mpgus: mile per US gallon/miles per US gallon/mpg
mpgimp: mile per imperial gallon/miles per imperial gallon/mpg
kg/m3: kilogram per cubic metre/kilograms per cubic metre/kg/m³
m3/s: cubic metre per second/cubic metres per second/m³/s
cuft/s: cubic foot per second/cubic feet per second/cu ft/s | hand: hand/hands
carat: carat/carats
"""


def _parse(table: str) -> dict[str, Unit]:
    units = {}
    for entry in table.replace("\n", "|").split("|"):
        code, _, words = entry.strip().partition(": ")
        if code:
            singular, plural, symbol = [*_split(words), code][:3]
            units[code] = Unit(singular, plural, symbol)
    return units


def _split(words: str) -> list[str]:
    # A symbol may hold slashes of its own: only the first two separate.
    return words.split("/", 2)


UNITS = _parse(_UNITS)


def unit_words(code: str, *, amount: str, symbol: bool, adjective: bool) -> str:
    """The unit `code` after `amount`: in full ("kilometres"), or its symbol; unknown codes stay.

    An adjective ("a 6-foot wall") is always singular and joined with a hyphen by the caller.
    """
    unit = UNITS.get(code)
    if unit is None:
        return code
    if symbol:
        return unit.symbol
    return unit.singular if adjective or amount in {"1", "one", "a"} else unit.plural
