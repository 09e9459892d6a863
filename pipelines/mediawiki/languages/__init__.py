"""Languages of wikis, as data: one readable file per language, and the settings of a wiki.

`common.yaml` holds what means the same everywhere, `en.yaml` and the others what belongs to one
language: words of the markup, how dates, numbers and units are written, and what templates write.
docs/corpus.md describes the files; `tests/pipelines/mediawiki/test_languages.py` checks them.
They are read once per process. Raise the version of `build-documents` when an edit changes text.

MediaWiki accepts English words on every wiki, and the `<siteinfo>` of a dump adds names of
namespaces (`wiki_settings`). Codes of units are those of `{{convert}}` of English Wikipedia, which
other wikis use as well.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.mediawiki.variants import converter_code
from schemas.errors import ConfigError

FOLDER = Path(__file__).parent
COMMON, FALLBACK = "common", "en"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Numbers(_Part):
    """How numbers are written."""

    group: str = " "
    """Between groups of three digits."""

    mark: str = ","
    """Before decimals."""

    least: int = 5
    """Digits from which on they are grouped."""

    least_formatnum: int = 4
    """The same for `{{formatnum:...}}`, which follows MediaWiki and not the style of the wiki."""


class Dates(_Part):
    """How dates are written; {day}, {month} and {year} stand for their parts."""

    day: str = "{day} {month} {year}"
    month: str = "{month} {year}"
    day_of_year: str = "{day} {month}"
    """A day without a year."""

    first_day: str = "1"
    """How the first of a month is written."""


class LanguageFile(_Part):
    """One file."""

    name: str
    """English name of the language."""

    like: str = ""
    """Code of a language whose file is read first; what stands here is added or replaces it."""

    spaceless: bool = False
    """Written without spaces between words."""

    namespaces: str = ""
    """Names of the namespaces File (and its aliases), Media, Category; underscores for blanks."""

    template_namespaces: str = ""
    """Names of the namespace Template."""

    closing_sections: tuple[str, ...] = ()
    """Titles of sections that hold references and links, lower-cased."""

    numbers: Numbers = Numbers()
    dates: Dates = Dates()
    months: tuple[str, ...] = Field(default=(), max_length=12)
    """As they stand alone, January first."""

    months_in_dates: tuple[str, ...] = Field(default=(), max_length=12)
    """As they stand after a day, where that differs."""

    words: dict[str, str] = {}
    """Words that rules write, such as `to` between two numbers."""

    symbols: dict[str, str] = {}
    """Code of a unit to its symbol, where that is not the code itself."""

    sizes: dict[str, dict[str, float]] = {}
    """Quantity to the codes of its units, and their sizes in one of them."""

    counterparts: dict[str, str] = {}
    """Code of a unit to that of the unit that it is converted to."""

    templates: dict[str, str] = {}
    """What a template writes (`pipelines.mediawiki.templates`) to names of such templates."""

    name_patterns: dict[str, str] = {}
    """The same for names by regular expression: expression to what the template writes."""


class _Loader(yaml.CSafeLoader):
    """Refuses two equal keys in one mapping: the first would be lost in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in values:
            line = key_node.start_mark.line + 1
            raise ConfigError(f"line {line}: the key {key!r} stands twice. Join the two")
        values[key] = loader.construct_object(value_node, deep=True)
    return values


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def codes() -> list[str]:
    """Return the languages with a file."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != COMMON)


def read_file(path: Path) -> LanguageFile:
    """Read the file of a language.

    Raises:
        ConfigError: it is not as `LanguageFile` says.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            return LanguageFile.model_validate(yaml.load(stream, _Loader))  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: not a valid file of a language: {error}") from error


@functools.cache
def language_file(code: str) -> LanguageFile:
    """Return the file of a language, merged with its base language; empty if it has no file."""
    path = FOLDER / f"{code}.yaml"
    if not path.is_file():
        return LanguageFile(name=code)
    own = read_file(path)
    return _joined(language_file(own.like), own) if own.like else own


def _joined(base: LanguageFile, own: LanguageFile) -> LanguageFile:
    values: dict[str, Any] = {}
    for field in own.model_fields_set:
        ours, theirs = getattr(own, field), getattr(base, field)
        if isinstance(ours, dict):
            ours = theirs | {key: f"{theirs.get(key, '')} {value}".strip() if field == "templates"
                             else value for key, value in ours.items()}  # fmt: skip
        elif field in ("namespaces", "template_namespaces"):
            ours = f"{theirs} {ours}"
        elif field == "closing_sections":
            ours = (*theirs, *ours)
        values[field] = ours
    return base.model_copy(update=values)


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_DROPPED_NAMESPACES = (-2, 6, 14)  # Media, File and Category, as in every dump's <siteinfo>

REDIRECT_WORDS = _words(
    "redirect přesměruj ohjaus uudelleenohjaus weiterleitung redirection redirección "
    "redirecionamento rinvia doorverwijzing patrz przekieruj tam перенаправление перенапр "
    "перенаправлення пренасочване преусмјери преусмери "
    "転送 リダイレクト 重定向 넘겨주기 تحويل تغییرمسیر "
    "تغییر_مسیر הפניה yönlendirme yönlendir đổi omdirigering omdiriger viderekobling "
    "átirányítás redirecteaza ανακατευθυνση ανακατεύθυνση alidirektu birzuzendu redirecció "
    "preusmjeri presmeruj preusmeritev เปลี่ยนทาง अनुप्रेषित"
)

# [[code:Title]] is a link to the same article in another language, shown in the margin only.
LANGUAGE_CODES = _words(
    "aa ab ace ady af ak als alt am ami an ang ar arc ary arz as ast atj av avk awa ay az azb "
    "ba ban bar bat-smg bcl be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs bug bxr "
    "ca cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din diq "
    "dsb dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fr frp frr fur fy ga "
    "gag gan gcr gd gl glk gn gom gor got gpe gu guc gur guw gv ha hak haw he hi hif ho hr hsb "
    "ht hu hy hyw hz ia id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg "
    "kg ki kj kk kl km kn ko koi kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld "
    "lmo ln lo lrc lt ltg lv mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mr mrj ms "
    "mt mus mwl my myv mzn na nah nap nds nds-nl ne new ng nia nl nn no nov nqo nrm nso nv ny "
    "oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy "
    "rn ro roa-rup roa-tara ru rue rw sa sah sat sc scn sco sd se sg sh shi shn si simple sk "
    "skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy te tet tg th ti tk tl "
    "tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo wa war wo "
    "wuu xal xh xmf yi yo za zea zh zh-classical zh-cn zh-min-nan zh-tw zh-yue zu"
)

# Prefixes of links to other wikis, which show their targets without them here.
WIKI_PREFIXES = LANGUAGE_CODES | _words(
    "w wikipedia wikt wiktionary b wikibooks s wikisource q wikiquote n wikinews v wikiversity "
    "voy wikivoyage species wikispecies d wikidata c commons m meta mw"
)


@dataclass(frozen=True, slots=True)
class WikiSettings:
    """Settings of a wiki, created by `wiki_settings`. Immutable, hashable, picklable."""

    language: str
    """ISO 639 code. Selects template rules and the format of numbers."""

    dropped_namespaces: frozenset[str]
    """Lower-cased names of namespaces whose links vanish (pictures, categories)."""

    closing_titles: frozenset[str]
    """Lower-cased titles of the sections that hold references and links only."""

    spaceless: bool
    """Written without spaces between words."""

    converter: str = ""
    """Key of `pipelines.mediawiki.variants.CONVERTERS`; "" if the wiki has no variants."""


def wiki_settings(language: str, namespaces: Mapping[int, str] | None = None) -> WikiSettings:
    """Return the settings of a wiki.

    Args:
        language: ISO 639 code, e.g. `en` or `zh-min-nan` (its first part decides). Languages
            without a file have the English words.
        namespaces: Local name by number, from the dump's `<siteinfo>`.
    """
    base = language.split("-", maxsplit=1)[0].lower()
    files = (language_file(FALLBACK), language_file(base))
    names = [name for file in files for name in file.namespaces.split()]
    names += [(namespaces or {}).get(number, "") for number in _DROPPED_NAMESPACES]
    return WikiSettings(
        language=base,
        dropped_namespaces=frozenset(name.replace("_", " ").lower() for name in names if name),
        closing_titles=frozenset(title for file in files for title in file.closing_sections),
        spaceless=files[1].spaceless,
        converter=converter_code(language),
    )
