"""Language variants: the text of `-{zh-hans:简体;zh-hant:繁體}-` that a reader sees.

Wikis such as the Chinese and the Serbian one convert their pages to the script and the words of
the reader's variant. Editors set words by hand in `-{...}-`. The text here is that of a reader who
has chosen no variant: the page as it is written, with the words of the main variant or, if it has
none, those of the first of its fallbacks.

Grammar: https://www.mediawiki.org/wiki/Writing_systems/Syntax
"""

# ruff: noqa: RUF001 - names in many scripts
from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple


class Converter(NamedTuple):
    """Variants of one wiki."""

    names: Mapping[str, str]
    """Code to name of each variant: the main one, its fallbacks in MediaWiki's order, others."""

    colon: str = ":"
    """Mark between a variant and its text in a description of rules."""

    semicolon: str = ";"
    """Mark after each rule of a description."""


CONVERTERS = {
    "ban": Converter({
        "ban": "Basa Bali", "ban-bali": "ᬩᬲᬩᬮᬶ", "ban-x-dharma": "Basa Bali (alih aksara DHARMA)",
        "ban-x-palmleaf": "Basa Bali (alih aksara Palmleaf.org)",
        "ban-x-pku": "Basa Bali (alih aksara Puri Kauhan Ubud)",
    }),
    "crh": Converter({
        "crh": "qırımtatarca", "crh-latn": "qırımtatarca (Latin)",
        "crh-cyrl": "къырымтатарджа (Кирилл)",
    }),
    "gan": Converter(
        {"gan": "原文", "gan-hans": "简体", "gan-hant": "繁體"}, semicolon="; ",
    ),
    "iu": Converter({
        "iu": "ᐃᓄᒃᑎᑐᑦ / inuktitut", "ike-cans": "ᐃᓄᒃᑎᑐᑦ", "ike-latn": "inuktitut",
    }),
    "kk": Converter({
        "kk": "қазақша", "kk-cyrl": "қазақша (кирил)", "kk-latn": "qazaqşa (latın)",
        "kk-arab": "قازاقشا (تٴوتە)", "kk-kz": "қазақша (Қазақстан)", "kk-tr": "qazaqşa (Türkïya)",
        "kk-cn": "قازاقشا (جۇنگو)",
    }),
    "ku": Converter({"ku": "kurdî", "ku-latn": "kurdî (latînî)", "ku-arab": "کوردی (عەرەبی)"}),
    "mni": Converter({"mni": "ꯃꯤꯇꯩ ꯂꯣꯟ", "mni-beng": "মেইতেই লোন্"}),
    "sh": Converter({
        "sh-latn": "srpskohrvatski (latinica)", "sh-cyrl": "српскохрватски (ћирилица)",
    }),
    "shi": Converter({"shi": "Taclḥit", "shi-latn": "Taclḥit", "shi-tfng": "ⵜⴰⵛⵍⵃⵉⵜ"}),
    "sr": Converter({
        "sr": "српски / srpski", "sr-ec": "српски (ћирилица)", "sr-el": "srpski (latinica)",
    }),
    "tg": Converter({"tg": "тоҷикӣ", "tg-latn": "tojikī"}),
    "tly": Converter({"tly": "tolışi", "tly-cyrl": "толыши"}),
    "uz": Converter({
        "uz": "oʻzbekcha / ўзбекча", "uz-latn": "oʻzbekcha (lotin)", "uz-cyrl": "ўзбекча (кирилл)",
    }),
    "wuu": Converter(
        {"wuu": "原文", "wuu-hans": "简体", "wuu-hant": "正體"}, colon="：", semicolon="；",
    ),
    "yue": Converter({"yue-hant": "原文", "yue-hans": "简体"}, colon="：", semicolon="；"),
    "zgh": Converter({"zgh": "ⵜⴰⵎⴰⵣⵉⵖⵜ ⵜⴰⵏⴰⵡⴰⵢⵜ", "zgh-latn": "tamaziɣt tanawayt"}),
    "zh": Converter(
        {
            "zh": "原文", "zh-hans": "简体", "zh-hant": "繁體", "zh-cn": "大陆", "zh-tw": "臺灣",
            "zh-hk": "香港", "zh-sg": "新加坡", "zh-mo": "澳門", "zh-my": "大马",
        },
        colon="：", semicolon="；",
    ),
}  # fmt: skip
"""Wikis with variants, by the code of their language."""

_ALIASES = {"sr-cyrl": "sr-ec", "sr-latn": "sr-el", "iu-cans": "ike-cans", "iu-latn": "ike-latn"}
_FLAGS = frozenset("ATRD-HN")
_LAST_ENTITY = re.compile(r"&#?\w{1,30};\Z")


class Rule(NamedTuple):
    """Text of one variant."""

    variant: str
    text: str
    source: str = ""
    """Words that a one-way rule replaces; "" for a rule that holds in all directions."""


def converter_code(language: str) -> str:
    """Return the key of `CONVERTERS` for a wiki's language or one of its variants, or ""."""
    language = {"zh-yue": "yue"}.get(language.lower(), language.lower())
    base = language.partition("-")[0]
    is_variant = base in CONVERTERS and language in CONVERTERS[base].names
    return language if language in CONVERTERS else base if is_variant else ""


def shown_text(markup: str, converter: Converter) -> str:
    """Return what a reader sees of the text between `-{` and `}-`; "" if it only sets rules."""
    flags, content = _split_flags(markup, converter)
    if "R" in flags:
        return content
    if "N" in flags:
        return converter.names.get(content.strip(), "")
    if "-" in flags:
        return ""
    rules = _parse_rules(content, converter)
    if "H" in flags or flags == {"T"} or flags >= {"A", "D"}:
        return _describe(rules, converter) if flags >= {"D", "H"} else ""
    if not flags.isdisjoint(converter.names) or not rules:
        return content
    return _describe(rules, converter) if "D" in flags else _default_text(rules, converter)


def _split_flags(markup: str, converter: Converter) -> tuple[frozenset[str], str]:
    """Split the flags from the text behind the first "|". Unknown flags are ignored."""
    head, pipe, content = markup.partition("|")
    if not pipe:
        return frozenset(), markup
    flags = frozenset(flag.strip() for flag in head.split(";"))
    return flags & (_FLAGS | converter.names.keys()), content


def _parse_rules(content: str, converter: Converter) -> list[Rule]:
    """Return the rules of `variant:text;words=>variant:text`, or none if one names no variant."""
    rules = []
    for part in _split_rules(content, converter):
        head, colon, text = part.partition(":")
        if not colon:
            continue
        variant = _find_variant(head, converter)
        if not variant:
            return []
        source, arrow, _ = head.partition("=>")
        rule = Rule(variant, text.strip(), source.strip() if arrow else "")
        if rule.source or (rule.text and not arrow):
            rules.append(rule)
    return rules


def _split_rules(content: str, converter: Converter) -> list[str]:
    """Split at semicolons. One that no rule follows, as in `&nbsp;`, belongs to the text."""
    parts = content.split(";")
    starts = [index for index, part in enumerate(parts)
              if not index or _find_variant(part.partition(":")[0], converter)]  # fmt: skip
    rules = [";".join(parts[a:b]).strip() for a, b in itertools.pairwise((*starts, len(parts)))]
    return [rule if _LAST_ENTITY.search(rule) else rule.removesuffix(";") for rule in rules]


def _find_variant(head: str, converter: Converter) -> str:
    """Return the variant that a rule names before its colon, or ""."""
    _, arrow, code = head.partition("=>")
    code = (code if arrow else head).strip().lower()
    code = _ALIASES.get(code, code)
    return code if code in converter.names else ""


def _default_text(rules: list[Rule], converter: Converter) -> str:
    """Return the text of the main variant or of its first fallback that has one. One-way rules
    count only if there are no others."""
    texts = {rule.variant: rule.text for rule in rules if not rule.source}
    in_order = (texts[variant] for variant in converter.names if variant in texts)
    return next(in_order, rules[0].text)


def _describe(rules: list[Rule], converter: Converter) -> str:
    """Return the rules as a reader sees them: the variants' names and their texts."""
    written = []
    for rule in sorted(rules, key=lambda rule: bool(rule.source)):
        source = f"{rule.source}⇒" if rule.source else ""
        name = converter.names[rule.variant]
        written.append(f"{source}{name}{converter.colon}{rule.text}{converter.semicolon}")
    return "".join(written)
