"""Pages of the sample wiki: documents of the sample world with the markup of real articles.

The markup never changes what a reader reads, so `Page.paragraphs` is exactly what cleaning must
return. The word "unread" marks everything that a reader of the prose does not see.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flows.sample.task_datasets import make_rows
from flows.sample.world import Words, capitalize, seeded, topic_names

_DUPLICATE_EVERY = 97
_NEAR_DUPLICATE_EVERY = 89
_REDIRECT_EVERY = 31
_OTHER_EVERY = 41
_CONTAMINATED_TASK = "conll-2003"  # the only set with texts of this length:
_SEARCHED_WORDS = 8  # a search for contamination passes over shorter texts


class Page(NamedTuple):
    """A page of the wiki, before it has an id and a revision."""

    namespace: int
    title: str
    text: str
    """Wikitext."""

    redirect: str = ""
    """Title that the page redirects to."""

    kind: str = "article"
    """Also `duplicate`, `near-duplicate`, `contaminated`, `malformed`, `redirect` or `other`."""

    paragraphs: Sequence[str] = ()
    """Prose of an article as a reader sees it."""


def make_pages(words: Words, *, seed: int, articles: int) -> Iterator[Page]:
    """Yield the articles of a world in order, and among them everything else that a wiki has.

    Args:
        words: all words of the world.
        seed: of the world; page n depends on the seed and n only.
        articles: number of articles.
    """
    for number in range(articles):
        draw = seeded("page", seed, number)
        topic, sentences = words.document(draw)
        title = _title(words, draw, topic, number)
        article = _article(title, topic, sentences, words, draw)
        yield article
        yield from _companions(article, topic, number, words, draw)
        if number == 0:
            yield Page(0, f"{title} (draft)", f"{article.text}\n{_UNCLOSED}", kind="malformed")
            yield _contaminated(words, seed)


def _title(words: Words, draw: random.Random, topic: int, number: int) -> str:
    return f"{words.fill('A N', draw, topic)} {number + 1}"


def _companions(
    article: Page, topic: int, number: int, words: Words, draw: random.Random
) -> Iterator[Page]:
    """Yield the pages that come with an article: copies, redirects, pages of other namespaces."""
    title, text = article.title, article.text
    if number % _DUPLICATE_EVERY == 1:
        yield article._replace(title=f"{title} (copy)", kind="duplicate")
    if number % _NEAR_DUPLICATE_EVERY == 2:
        added = words.sentence(draw, topic)
        yield Page(
            0,
            f"{title} (retold)",
            text.replace("\n\n== See also", f" {added}\n\n== See also"),
            kind="near-duplicate",
            paragraphs=[*article.paragraphs[:-1], f"{article.paragraphs[-1]} {added}"],
        )
    if number % _REDIRECT_EVERY == 3:
        form = draw.choice(("#REDIRECT [[{}]]", "#redirect [[{}#Story]]\n\n{{{{R from alias}}}}"))
        yield Page(0, f"The {title.lower()}", form.format(title), title, "redirect")
    if number % _OTHER_EVERY == 4:
        namespace, name, form = _OTHERS[number // _OTHER_EVERY % len(_OTHERS)]
        page_title = name.replace("TITLE", title)
        yield Page(namespace, page_title, form.replace("TITLE", title), kind="other")


def _contaminated(words: Words, seed: int) -> Page:
    """Return a page that quotes dev rows, so that a search for contamination finds something."""
    texts = [row["first"] for row in make_rows(_CONTAMINATED_TASK, words, seed)["dev"]]
    long = [text for text in texts if len(text.replace(",", "").split()) >= _SEARCHED_WORDS][:10]
    sentences = [text.replace(" ,", ",").rstrip(",") + "." for text in long]
    return Page(0, "Quoted rows", " ".join(sentences), kind="contaminated",
                paragraphs=[" ".join(sentences)])  # fmt: skip


def _article(
    title: str, topic: int, sentences: Sequence[str], words: Words, draw: random.Random
) -> Page:
    """Return a document as an article of an opening and one or two sections."""
    nouns = words.topics[topic].nouns
    middle = len(sentences) // 2
    starts = [0, draw.randint(2, middle), *([middle + 2] if len(sentences) > 10 else [])]
    ends = [*starts[1:], len(sentences)]
    groups = [sentences[start:end] for start, end in zip(starts, ends, strict=True)]
    marked = [" ".join(_mark_up(text, nouns, draw) for text in group) for group in groups]
    topic_name = topic_names()[topic]
    parts = [_TOP.format(title=title, topic=topic_name), marked[0]]
    for heading, text in zip(draw.sample(_HEADINGS, len(groups) - 1), marked[1:], strict=True):
        block = draw.choice(_BLOCKS).format(noun=draw.choice(nouns), topic=topic_name)
        parts += [f"\n== {heading} ==", *([block] if draw.random() < 0.5 else []), text]
    parts.append(_BOTTOM.format(noun=draw.choice(nouns), topic=topic_name, title=title))
    paragraphs = [" ".join(group) for group in groups]
    return Page(0, title, "\n".join(parts), paragraphs=paragraphs)


def _mark_up(sentence: str, nouns: Sequence[str], draw: random.Random) -> str:
    """Return a sentence with markup that its reader does not see, in about half of the cases."""
    words = sentence.rstrip(".").split()
    chance = draw.random()
    for index, word in enumerate(words):
        if word.lower() in nouns and chance < 0.3:
            target = capitalize(word)
            words[index] = draw.choice((f"[[{target}|{word}]]", f"[[{word}]]", f"''{word}''"))
            break
    if chance > 0.95:
        words.insert(1, "<!-- unread -->")
    return " ".join(words) + "." + (draw.choice(_REFERENCES) if 0.4 < chance < 0.5 else "")


_HEADINGS = ("Story", "Use", "Places", "Reception", "Later years")

_TOP = """\
{{{{Short description|Unread page about the {topic}}}}}
{{{{Infobox {topic}
| name = {title}
| image = {title}.jpg
| caption = Unread view of the [[{topic}]]
| length = {{{{convert|12|km|mi|abbr=on}}}}
}}}}"""

_BOTTOM = """
== See also ==
* [[Unread {noun}]]
* [[List of unread pages|Unread pages]]

== References ==
{{{{reflist|30em}}}}

{{{{Navbox {topic} | list1 = [[Unread {noun}]] {{{{·}}}} [[{title}]] }}}}
{{{{DEFAULTSORT:{title}}}}}
[[Category:Unread {topic}]]
[[de:{title}]]"""

_REFERENCES = (
    "<ref>{{cite book |last=Unread |title=Unread papers |publisher=Unread}}</ref>",
    '<ref name="unread" />',
    "<ref group=note>[https://sample.example.org/unread Unread notes]</ref>",
    "{{citation needed|date=May 2025}}",
    "{{sfn|Unread|1901|p=12}}",
)

_BLOCKS = (
    '{{| class="wikitable sortable"\n|+ Unread table\n! Unread !! Number\n|-\n'
    "| [[{noun}|unread]] || {{{{nts|12}}}}\n|}}\n",
    "[[File:Unread {noun}.jpg|thumb|left|Unread [[{noun}]] of the ''{topic}'']]",
    '<gallery mode="packed">\nFile:Unread {noun}.jpg|Unread {noun}\n</gallery>\n',
    "<!-- unread: a note to writers -->",
    "* [[{noun}|Unread]]\n* Unread {topic}\n",
)

_UNCLOSED = "{| class=unclosed\n| [[never closed"

_OTHERS = (
    (1, "Talk:TITLE", "== Unread ==\nIs [[TITLE]] complete? --[[User:Ada]]\n: Yes. ~~~~"),
    (2, "User:Reader of TITLE", "I write about [[TITLE]]. {{Babel|en|de-2}}"),
    (4, "Samplewiki:Project TITLE", "A project about [[TITLE]]."),
    (6, "File:TITLE.jpg", "== License ==\n{{PD-self}}"),
    (10, "Template:TITLE", "<includeonly>{{#if:{{{1|}}}|[[TITLE]]}}</includeonly>"),
    (14, "Category:TITLE", "Everything about [[TITLE]]."),
    (828, "Module:TITLE", "local p = {}\nfunction p.size() return 1 < 2 end\nreturn p"),
    (0, "Empty TITLE", ""),
    (0, "TITLE (disambiguation)", "'''TITLE''' may refer to:\n* [[TITLE]]\n\n{{disambiguation}}"),
)
