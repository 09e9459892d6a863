"""Words of the markup that differ between wikis.

The words of a language are in its file (`pipelines.mediawiki.languages`). MediaWiki accepts English
words on every wiki. The `<siteinfo>` of a dump adds names; see `wiki_settings`.
Names are lower-cased, with spaces for underscores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.mediawiki.languages import FALLBACK, language_file


def _in_order(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


FILE_NUMBERS = (-2, 6)  # Media and File, as numbered in every dump's <siteinfo>
CATEGORY_NUMBER = 14

REDIRECT_WORDS = _in_order(
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


def namespace_words(language: str) -> frozenset[str]:
    """Return the names of namespaces whose links are dropped, in English and in `language`."""
    words = f"{language_file(FALLBACK).namespaces} {language_file(language).namespaces}"
    return frozenset(word.replace("_", " ").lower() for word in words.split())


def closing_titles(language: str) -> frozenset[str]:
    """Return the titles of sections without text, in English and in `language`."""
    files = (language_file(FALLBACK), language_file(language))
    return frozenset(title for file in files for title in file.closing_sections)


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


def wiki_settings(language: str, namespaces: Mapping[int, str] | None = None) -> WikiSettings:
    """Return the settings of a wiki.

    Args:
        language: ISO 639 code, e.g. `en` or `zh-min-nan` (its first part decides). Languages
            without a file have the English words.
        namespaces: Local name by number, from the dump's `<siteinfo>`.
    """
    base = language.split("-", maxsplit=1)[0].lower()
    local = {
        (namespaces or {}).get(number, "").replace("_", " ").lower()
        for number in (*FILE_NUMBERS, CATEGORY_NUMBER)
    }
    return WikiSettings(
        language=base,
        dropped_namespaces=namespace_words(base) | (local - {""}),
        closing_titles=closing_titles(base),
        spaceless=language_file(base).spaceless,
    )
