"""Classify a block of lines: heading, entry of a list of contents, publisher's line, ornament,
verse, prose, back matter.

Each function looks at one block. `pipelines.books.clean_book` also considers its position.
"""

# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
from __future__ import annotations

import re

_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|"
    "fourteenth|fifteenth|sixteenth|seventeenth|eighteenth|nineteenth|twentieth|last"
)
_CARDINALS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen"
)
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_ROMAN = r"(?-i:[IVXLC]+|[ivxlc]+)"
_NUMERAL = (
    rf"(?:{_ROMAN}|\d{{1,3}}|(?:the[ ]+)?(?:{_ORDINALS})"
    rf"|(?:{_TENS})(?:[- ](?:{_ORDINALS}|{_CARDINALS}))?|{_CARDINALS})"
)
_PART = (
    r"(?-i:CHAPTER|Chapter|CHAP|Chap|BOOK|Book|PART|Part|VOLUME|Volume|VOL|Vol|SECTION|Section"
    r"|CANTO|Canto|STAVE|Stave|LETTER|Letter|ACT|Act|SCENE|Scene|EPISODE|Episode|PHASE|Phase"
    r"|NARRATIVE|Narrative|STORY|Story|TALE|Tale|EPOCH|Epoch)"
)
_PART_HEADING = re.compile(
    rf"[ \t_*=]*(?:(?-i:THE|The)[ ]+)?(?:{_PART}\.?[ ]+{_NUMERAL}\b"
    rf"|(?:{_ORDINALS}|initial|final|concluding|introductory)[ ]+{_PART}\b)"
    r"(?P<rest>.*)$",
    re.IGNORECASE,
)
# A heading begins with a capital; "contents." alone on a line is the end of a wrapped sentence.
_CAPITAL = r"(?=[^a-zA-Z]{0,9}(?-i:[A-Z]))"
_NAMED_HEADING = re.compile(
    _CAPITAL
    + r"[ \t_*=]*(?:(?:THE|AN?|AUTHOR'?S?)\s+)?(?:PREFACE|INTRODUCTION|INTRODUCTORY|PROLOGUE"
    r"|PRELUDE|PROEM|EPILOGUE|CONCLUSION|FOREWORD|AFTERWORD|POSTSCRIPT|APPENDIX|DEDICATION|FINALE"
    r"|INTERLUDE|L'ENVOI|ENVOI|ARGUMENT|NOTES?|ADVERTISEMENT)(?P<rest>\b.*)$",
    re.IGNORECASE,
)
_PREFACE = re.compile(
    r"[ \t_*=]*(?:(?:THE|AN?|AUTHOR'?S?)\s+)?(?:PREFACE|INTRODUCT|PROLOGUE|PRELUDE|PROEM|FOREWORD)",
    re.IGNORECASE,
)
_BARE_NUMERAL = re.compile(r"[ \t_*=(\[-]*(?:[IVXLC]+|\d{1,3})[.)\]_*=: -]*$")
_NUMBERED_TITLE = re.compile(
    r"[ \t_*=]*(?:(?:[IVXLC]+|\d{1,3})(?:[.):][ ]*|[ ]*[—–]+[ ]*|--[ ]*|[ ]{2,})|0?\d{1,2}[ ])"
    r"(?P<rest>\S.*)$"
)
_LIST_HEADING = re.compile(
    _CAPITAL
    + r"[ \t_*=]*(?:(?:TABLE\s+OF\s+)?CONTENTS|(?:LIST\s+OF\s+|THE\s+)?ILLUSTRATIONS|CHAPTERS|INDEX"
    r"|LIST\s+OF\s+(?:PLATES|CHAPTERS|MAPS)|(?:FULL[- ]PAGE\s+)?COLOU?RED\s+PLATES"
    r"|DRAMATIS\s+PERSON(?:AE|Æ)|(?:THE\s+)?(?:PERSONS|CHARACTERS)(?:\s+(?:OF|IN)\s+THE\s+(?:PLAY"
    r"|DRAMA|COMEDY|TRAGEDY|PIECE))?|PERSONS\s+REPRESENTED|CAST(?:\s+OF\s+CHARACTERS)?)"
    r"[.:_*= ]*+(?:PAGE[.:_*= ]*+)?$",
    re.IGNORECASE,
)
_ORNAMENT = re.compile(r"[\s*_#~=+|·•—–.,:;<>oO§-]*$")
_ENDING = re.compile(
    _CAPITAL
    + r"[ \t_*=\[(\"“-]*(?:THE\s+END|FINIS|FIN|THE\s+END\s+OF\s+(?:THE\s+)?(?:BOOK|STORY|TALE)"
    r"|END\s+OF\s+(?:THE\s+)?(?:BOOK|STORY|NOVEL))[ \t_*=.!\])\"”-]*$",
    re.IGNORECASE,
)
_COLOPHON = re.compile(
    r"copyright\W{1,3}(?:\(c\)|©|\d{4}|by\b|renew|secured|in\b)|©|all rights reserved"
    r"|entered according to|\be-?text\b|\be-?book|transcribed|project gutenberg|proofread|"
    r"scanned (?:by|from|and)|digiti[sz]ed|\bisbn\b|smashwords|"
    r"licen[cs]e notes|personal enjoyment|work of fiction|resemblance to|no part of this|"
    r"post-?processed|html version|www\.|https?:|[\w.]@\w+\.|cover (?:art|design)|"
    r"(?:strand|cornhill|fraser's|harper's|pall mall) _?magazine|bibliographical note|"
    r"\bthis (?:series|library|collection)\b.{0,80}\bis (?:published|issued)\b",
    re.IGNORECASE,
)
_PUBLISHER = re.compile(
    r"(?:published|printed|reprinted|set up|electrotyped|presswork|engraved|issued"
    r"|illustrat\w{0,9}|translated|edited|etched|designed|produced|prepared|created|decorated) "
    r"(?:and (?:published|printed|bound) )?(?:in|by|for|from)\b"
    r"|first (?:published|edition|printed|issued)"
    r"|\breprinted\b|second edition|new edition|\bedition of\b|this edition|\bimpression\b"
    r"|publish(?:ers?|ing|ed under)|printers|author(?:ess)? of|by the same author|university press"
    r"|\bpress,|& (?:co|sons?|company)\b|\bltd\b|limited[,.]|(?:with|and) (?:\w+ )?illustrations|"
    r"frontispiece|millennium fulcrum|dedicated|all rights",
    re.IGNORECASE,
)
_PRINTER = re.compile(
    r"[ \t_*(]*(?:presswork|printed|set up|electrotyped|composition|typeset)\b.*\b(?:by|at|in)\b"
    r"|.*\bprinters\b",
    re.IGNORECASE,
)
_PRICE = re.compile(
    r"\b\d+s\.(?: ?\d+d\.)?|\b\d+d\.|[$£]\s?\d|\bcents\b|\b(?:8|12|16|18|24|32)(?:mo|vo)\b|"
    r"\bcrown 8|\bcloth\b|\bgilt\b|\bmorocco\b|post-?paid|\bvols?\.|"
    r"included in the series|catalogue of|price \w+|\bbound in\b",
    re.IGNORECASE,
)
_VOLUMES = re.compile(r"volumes?\b", re.IGNORECASE)
_VOLUME = re.compile(r"\bvolumes?\b", re.IGNORECASE)
_SERIES = re.compile(r"\bseries\b", re.IGNORECASE)
_DATE_LINE = re.compile(
    r"(?:[A-Z][\w.'’-]*,?\s+){0,4}(?:\d{1,2}(?:st|nd|rd|th)?,?\s+)?"
    r"(?:of\s+)?(?:[A-Z][a-z]+\.?,?\s+)?(?:1[4-9]|20)\d\d(?:\s*[-–—]\s*\d{2,4})?[\W_]*$"
)
_TURN = re.compile(
    r"(?!(?:Mrs?|Dr|St|Capt|Sir|Lord|Lady)\b\.? )"
    r"_?(?P<name>[A-Z][A-Z'’. -]{0,28}[A-Z]|[A-Z][\w'’]*(?:[ -][A-Z][\w'’]*){0,2})_?"
    r"(?: ?(?:\([^()]{1,80}\)|\[[^\[\]]{1,80}\]|_[^_]{1,80}_))?[.:]_?(?:\s*(?:--|—)\s*|\s+)\S"
)
_LONE_NAME = re.compile(r"_?(?P<name>[A-Z][A-Z'’ -]{1,28})[.:]?_?$")
_PERSONS = re.compile(
    r"[ \t_*=]*(?:DRAMATIS|(?:THE\s+)?PERSONS|(?:THE\s+)?CHARACTERS|CAST)\b", re.I
)
_NOTE_HEADING = re.compile(
    r"[ \t_*=|+\[-]*(?:(?:ERRATA|ERRORS|CORRECTIONS) (?:NOTED|MADE) BY (?:THE )?TRANSCRIBER"
    r"|TRANSCRIBER|TRANSCRIPTION|PREPARER|PROOFREADER|E-?TEXT EDITOR|EDITOR AND "
    r"TRANSCRIBER|E-?BOOK TRANSCRIBER)['’]?S?['’]?\s*(?:END\s*)?"
    r"(?:NOTE|COMMENT|ERRATA|CORRECTION|REMARK|AMENDMENT)?S?\b",
    re.IGNORECASE,
)
_AUTHOR_NOTE = re.compile(
    r"[ \t_*=]*(?:ABOUT THE AUTHOR|ABOUT (?:THIS|THE) (?:BOOK|E-?BOOK|TYPE)"
    r"|(?:OTHER|MORE) (?:BOOKS|TITLES|WORKS) (?:BY|FROM)|ALSO BY|BY THE SAME AUTHOR"
    r"|A NOTE ON THE TYPE|CONNECT WITH|ACKNOWLEDGE?MENTS?\W*$"
    r"|(?:THE )?(?:BOOKS|WORKS|NOVELS|STORIES|PLAYS|POEMS) (?:BY THE SAME|OF THE SAME|PUBLISHED BY)"
    r"|PUBLICATIONS (?:OF|BY)\b"
    r"|(?:A )?(?:(?:SELECTED|COMPLETE|SHORT) )?(?:LIST|CATALOGUE) OF (?:\w+ ){0,3}"
    r"(?:BOOKS|WORKS|NOVELS|PUBLICATIONS)|(?:NEW|RECENT|OTHER|POPULAR|LATEST|STANDARD) "
    r"(?:BOOKS|NOVELS|PUBLICATIONS|EDITIONS|VOLUMES)\b|UNIFORM WITH THIS)",
    re.IGNORECASE,
)
_PAGE_TAIL = re.compile(
    r"(?:(?<!\s)\s{2,}+|\.\s?\.|\s[\"”]\s|_?page_?\s|\bp\.)\s*+[\"”]?+\s*+\d{1,4}\W*+$"
    r"|(?:\. ){3}|\.{4}|(?<!\s)\s{2,}+_?(?:frontispiece|front|page|to face)\b",
    re.IGNORECASE,
)
_PAGE_NUMBER = re.compile(
    r"(?:(?<![\s.])[\s.]{2,}+|\s[\"”]\s++)_?(?:page_?\s*+)?\d{1,4}\W*+$", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?:[.!?:;,]|--|—|–|-)[\"'”’»)\]_*=]*$")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
QUOTES = ('"', "“", "‘", "'")
"""Marks at the start of speech."""

_CLOSING_QUOTES = ('"', "”", "’", "'")
_MAX_TITLE_WORDS = 24
_MAX_PUBLISHER_WORDS = 40
_MAX_TITLE_CHARACTERS = 220
_MAX_NUMBERS = 4  # of volume, book, part and chapter, in one line


def is_ornament(text: str) -> bool:
    """Return whether a block is a separator of stars, dashes or dots, or a rule."""
    return _ORNAMENT.match(text) is not None


def is_list_heading(text: str) -> bool:
    """Return whether a line begins a list: `CONTENTS`, `LIST OF ILLUSTRATIONS`."""
    return _LIST_HEADING.match(text) is not None


def is_end_marker(text: str) -> bool:
    """Return whether a line is `THE END` or `FINIS`."""
    return _ENDING.match(text) is not None


def is_note_heading(text: str) -> bool:
    """Return whether a line begins a transcriber's note."""
    return _NOTE_HEADING.match(text) is not None


def is_date_line(text: str) -> bool:
    """Return whether a block is a date with an optional place: `LONDON, _May_ 1886.`, `1883.`"""
    return _DATE_LINE.match(text.replace("_", "")) is not None


def is_persons_heading(text: str) -> bool:
    """Return whether a heading is that of the persons of a play."""
    return _PERSONS.match(text) is not None


def speaker_name(text: str) -> str:
    """Return the speaker of a turn in a play, or "": `HAMLET. To be`, `_Ham._ To be`, or `HAMLET`
    in a separate block."""
    match = _TURN.match(text) or _LONE_NAME.match(text)
    return "" if match is None else match["name"].strip(" .").upper()


def is_author_note(text: str) -> bool:
    """Return whether a heading begins back matter: about the author, other books, the type."""
    return _AUTHOR_NOTE.match(text) is not None and is_title(text, strict=True)


def is_part_heading(line: str) -> bool:
    """Return whether a line is a heading in any context: `CHAPTER I`, `Book the First.`"""
    match = _PART_HEADING.match(line)
    if match is None or len(line) > _MAX_TITLE_CHARACTERS:
        return False
    rest = match["rest"].strip(" _*=")
    if rest and rest[0] not in ".:-—–,;([":
        return is_title(rest, strict=True)
    rest = rest.lstrip(".:-—–,;([ ")
    few = len(_WORD.findall(rest)) <= 12 and rest[:1].isupper()
    return not rest or few or is_title(rest)


def is_numeral(text: str) -> bool:
    """Return whether a block is a chapter number: `IV.`, `12`, `2.`"""
    return _BARE_NUMERAL.match(text) is not None


def is_named_heading(text: str) -> bool:
    """Return whether a line is `PREFACE`, `Introduction`, `EPILOGUE: ...`."""
    match = _NAMED_HEADING.match(text)
    if match is None or len(text) > _MAX_TITLE_CHARACTERS:
        return False
    rest = match["rest"].strip(" _*=.:-—–")
    return not rest or is_capitals(text)


def is_preface(text: str) -> bool:
    """Return whether a heading precedes prose of the author: preface, introduction."""
    return is_named_heading(text) and _PREFACE.match(text) is not None


def is_numbered_title(text: str) -> bool:
    """Return whether a line is a number and a title: `I. THE RIVER BANK`, `01 My Early Home`."""
    match = _NUMBERED_TITLE.match(text)
    return match is not None and len(text) <= 120 and is_title(match["rest"], strict=True)


def is_capitals(text: str) -> bool:
    """Return whether at least 90% of the letters of a text are capitals."""
    letters = [character for character in text if character.isalpha()]
    return len(letters) > 1 and sum(map(str.isupper, letters)) >= 0.9 * len(letters)


def is_title(text: str, *, strict: bool = False) -> bool:
    """Return whether a text directly after a chapter number can be the chapter's title.

    Args:
        text: Text of the block in one line.
        strict: Require capitals or title case, not only a short line without a full stop.
    """
    text = text.strip(" _*=")
    words = _WORD.findall(text)
    if not words or len(text) > _MAX_TITLE_CHARACTERS:
        return False
    if is_capitals(text):
        return True
    if len(words) > _MAX_TITLE_WORDS:
        return False
    if text.startswith(QUOTES) and not text.endswith(_CLOSING_QUOTES):
        return False
    long = [word for word in words if len(word) > 3]
    capitalised = sum(word[0].isupper() for word in long)
    if words[0][0].isupper() and long and capitalised >= 0.7 * len(long):
        return not _reads_like_speech(text)
    few = len(words) <= 12 and words[0][0].isupper()
    return not strict and few and _SENTENCE_END.search(text) is None


def _reads_like_speech(text: str) -> bool:
    inner = text.rstrip("".join(_CLOSING_QUOTES))
    return text.startswith(QUOTES) and text != inner and inner.endswith(tuple(".,!?-—"))


def is_publisher(text: str) -> bool:
    """Return whether a block is from a title page, imprint, producer or advertisement.

    In a long paragraph "published by" and the like prove nothing: a preface may say them.
    """
    if _COLOPHON.search(text) is not None:
        return True
    return text.count(" ") < _MAX_PUBLISHER_WORDS and (
        _PUBLISHER.search(text) is not None or is_advertisement(text)
    )


def is_printer(text: str) -> bool:
    """Return whether a line is that of the printer: `PRINTED BY ...`, `SPEARS, PRINTERS`."""
    return text.count(" ") < 14 and _PRINTER.match(text) is not None


def is_advertisement(text: str) -> bool:
    """Return whether a line has a price or a binding, as in lists of other books."""
    return _PRICE.search(text) is not None or _names_series(text)


def _names_series(text: str) -> bool:
    """Return whether a text names a series: `Volumes of the Pocket Series`."""
    volume, series = _VOLUMES.search(text), _SERIES.search(text)
    if volume is None or series is None:
        return False
    after = _VOLUME.search(text, series.end()), _SERIES.search(text, volume.end())
    return any(found is not None for found in after)


def is_prose(text: str) -> bool:
    """Return whether a text is sentences: enough words in lower case, punctuation at the end."""
    words: list[str] = _WORD.findall(text)
    if len(words) < 8 or _SENTENCE_END.search(text) is None or _PAGE_TAIL.search(text):
        return False
    return sum(word[0].islower() for word in words) >= 0.5 * len(words)


def is_verse(lines: list[str]) -> bool:
    """Return whether lines are verse: three or more short lines, most with a capital."""
    if len(lines) < 3 or any(_PAGE_TAIL.search(line) for line in lines):
        return False
    words = [_WORD.findall(line) for line in lines]
    if sum(map(len, words)) < 4 * len(lines) or is_capitals(" ".join(lines)):
        return False
    ended = sum(_SENTENCE_END.search(line) is not None for line in lines)
    lower = sum(word[0].islower() for line in words for word in line)
    return ended >= 0.4 * len(lines) and lower >= 0.45 * sum(map(len, words))


def is_listing(lines: list[str]) -> bool:
    """Return whether lines are entries of a list of contents: page numbers, numerals, titles."""
    if any(_PAGE_TAIL.search(line) for line in lines):
        return True
    text = " ".join(line.strip() for line in lines)
    return not is_prose(text) and not is_verse(lines)


def entry_key(text: str) -> str:
    """Return a heading or an entry of contents without number and page, for comparison."""
    text = _PAGE_NUMBER.sub("", text)
    match = _PART_HEADING.match(text)
    numbered = _NUMBERED_TITLE.match(text) if match is None else None
    for _ in range(_MAX_NUMBERS):  # "VOLUME ONE, CHAPTER TWO. THE FAIR": two before the title
        if match is None:
            break
        text = match["rest"].lstrip(" .:,;-—–_")
        match = _PART_HEADING.match(text)
    text = numbered["rest"] if numbered is not None else text
    return " ".join(_WORD.findall(text.lower()))


def is_breaking_heading(line: str) -> bool:
    """Return whether a line is a heading even between lines of text without blank lines."""
    return (
        is_part_heading(line)
        or is_list_heading(line)
        or is_end_marker(line)
        or is_numeral(line)
        or is_named_heading(line)
        or (len(line) < 60 and is_capitals(line) and not line.lstrip().startswith(QUOTES))
    )


_CATALOGUED = re.compile(
    r"\b(?:4to|(?:8|12|16|18|24|32)[mv]o)\b|\bpost-?(?:paid|free)\b|\bprice,? (?:[$£]|\d)"
    r"|\bcloth[,;:]? (?:gilt|extra|boards|limp|elegant|[$£\d])"
    r"|(?:[$£]\d+\.\d\d|\b\d+s\.(?: ?\d+d\.)?|\b\d+d\.|\b\d+ cents)"
    r"(?: (?:net|each|per vol\w*))?[\W_]*$",
    re.IGNORECASE,
)
_ERRATUM = re.compile(
    r"(?:\bp(?:age|p?\.)|\bline|\bl\.)\s*\d+\b.{0,80}\b(?:for|read|dele)\b|\bfor\b.{1,60}\bread\b",
    re.IGNORECASE,
)
_ERRATA = re.compile(
    r"(?=[^a-zA-Z]{0,9}(?-i:[A-Z]))[ \t_*=|+-]*(?:LIST OF |THE )?"
    r"(?:TYPOGRAPHICAL ERRORS|ERRAT(?:A|UM)|CORRIGENDA|ADDENDA)"
    r"(?:(?: AND| ET| &) (?:ERRATA|CORRIGENDA|ADDENDA|CORRECTIONS))?\b[^a-z]*$",
    re.IGNORECASE,
)
_ENDNOTES = re.compile(
    r"(?=[^a-zA-Z]{0,9}(?-i:[A-Z]))[ \t_*=]*(?:FOOT-?NOTES|END-?NOTES|NOTES?)[ \t_*=.:]*$",
    re.IGNORECASE,
)
_ENDNOTE = re.compile(
    r"[ \t_]*(?:[\[({](?:\d{1,3}|[a-zA-Z]|[*†‡§]{1,3})[\])}]|(?:note )?\d{1,3}[.:)]|[*†‡§]{1,3})"
    r"\s*\S",
    re.IGNORECASE,
)
_BRACKETED_NOTE = re.compile(r"[ \t_]*[\[{](?:\d{1,3}|[*†‡§]{1,3})[\]}](?:\s*\S|$)")
_MAX_ENTRY_WORDS = 120
_MAX_ERRATUM_WORDS = 40


def is_catalogued(text: str) -> bool:
    """Return whether a block is an entry of a catalogue, with a format, binding or price."""
    return text.count(" ") < _MAX_ENTRY_WORDS and _CATALOGUED.search(text) is not None


def is_errata_heading(line: str) -> bool:
    """Return whether a line is `ERRATA` or `Addenda et Corrigenda`."""
    return _ERRATA.match(line) is not None


def is_erratum(text: str) -> bool:
    """Return whether a block is a line of an errata table: `Page 12, line 3, for x read y`."""
    return text.count(" ") < _MAX_ERRATUM_WORDS and _ERRATUM.search(text) is not None


def is_endnotes_heading(text: str) -> bool:
    """Return whether a line is `FOOTNOTES` or `NOTES`."""
    return _ENDNOTES.match(text) is not None


def is_footnotes_heading(text: str) -> bool:
    """Return whether a block is `FOOTNOTES` alone, which heads nothing but notes."""
    return is_endnotes_heading(text) and "foot" in text.lower()


def is_endnote(text: str) -> bool:
    """Return whether a block begins with the number or mark of a note."""
    return _ENDNOTE.match(text) is not None or is_bracketed_note(text)


def is_bracketed_note(text: str) -> bool:
    """Return whether a block begins with a number in brackets, which no list of a story has."""
    return _BRACKETED_NOTE.match(text) is not None
