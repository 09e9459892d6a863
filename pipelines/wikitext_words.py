"""Words in which wikis differ: namespace names, redirect words, titles of closing sections.

English words are valid on every wiki (MediaWiki accepts them everywhere), so a language lists only
its own. A dump's own `<siteinfo>` adds to them; see `markup_for`.
Names are lower-cased, with spaces for underscores.
"""

# ruff: noqa: RUF001 - letters of many alphabets
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def _in_order(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


FILE_NUMBERS = (-2, 6)  # Media and File, as numbered in every dump's <siteinfo>
CATEGORY_NUMBER = 14

# Links into these namespaces show a picture or nothing at all; File, its aliases, Media, Category.
DROPPED_NAMESPACES: dict[str, str] = {
    "en": "file image media category",
    "ar": "ملف صورة وسائط تصنيف",
    "bg": "файл картинка медия категория",
    "ca": "fitxer imatge media categoria",
    "cs": "soubor média kategorie",
    "da": "fil billede kategori",
    "de": "datei bild medium kategorie",
    "el": "αρχείο εικόνα μέσο κατηγορία",
    "eo": "dosiero aŭdvidaĵo kategorio",
    "es": "archivo imagen medio categoría",
    "eu": "fitxategi irudi kategoria",
    "fa": "پرونده تصویر رسانه رده",
    "fi": "tiedosto kuva luokka",
    "fr": "fichier média catégorie",
    "he": "קובץ תמונה מדיה קטגוריה",
    "hi": "चित्र मीडिया श्रेणी",
    "hr": "datoteka slika kategorija",
    "hu": "fájl kép média kategória",
    "id": "berkas gambar kategori",
    "it": "immagine categoria",
    "ja": "ファイル 画像 メディア カテゴリ",
    "ko": "파일 그림 미디어 분류",
    "nl": "bestand afbeelding categorie",
    "no": "fil bilde kategori",
    "pl": "plik grafika kategoria",
    "pt": "ficheiro arquivo imagem multimédia mídia categoria",
    "ro": "fișier imagine categorie",
    "ru": "файл изображение медиа категория к",
    "sk": "súbor obrázok médiá kategória",
    "sl": "slika datoteka kategorija",
    "sr": "датотека слика медиј категорија datoteka slika kategorija",
    "sv": "fil bild kategori",
    "th": "ไฟล์ ภาพ สื่อ หมวดหมู่",
    "tr": "dosya resim medya ortam kategori",
    "uk": "файл зображення медіа категорія",
    "vi": "tập_tin hình phương_tiện thể_loại",
    "zh": "文件 檔案 档案 图像 圖像 媒体 媒體 分类 分類",
}

REDIRECT_WORDS = _in_order(
    "redirect přesměruj ohjaus uudelleenohjaus weiterleitung redirection redirección "
    "redirecionamento rinvia doorverwijzing patrz przekieruj tam перенаправление перенапр "
    "перенаправлення пренасочване преусмјери преусмери "
    "転送 リダイレクト 重定向 넘겨주기 تحويل تغییرمسیر "
    "تغییر_مسیر הפניה yönlendirme yönlendir đổi omdirigering omdiriger viderekobling "
    "átirányítás redirecteaza ανακατευθυνση ανακατεύθυνση alidirektu birzuzendu redirecció "
    "preusmjeri presmeruj preusmeritev เปลี่ยนทาง अनुप्रेषित"
)

# Sections that hold references and links, no text. Comma-separated because titles have spaces.
CLOSING_SECTIONS: dict[str, str] = {
    "en": "see also,references,reference,external links,external link,further reading,notes,"
    "bibliography,footnotes,sources,citations,works cited,notes and references,"
    "references and notes,references and further reading,further references,cited references,"
    "references and external links,external references,literature cited,general references,"
    "notes and citations,sources and further reading,bibliography and further reading,"
    "external sources,related links,additional reading,suggested reading,recommended reading,"
    "primary sources,secondary sources,web links,weblinks,links,see also and references,"
    "general sources,cited sources,cited works,citations and notes,notes and sources,"
    "reference list,list of references,references cited,explanatory notes,endnotes,"
    "further information,gallery,image gallery",
    "ar": "مراجع,المراجع,انظر أيضا,انظر أيضًا,وصلات خارجية,روابط خارجية,هوامش,ملاحظات,مصادر,المصادر",
    "ca": "referències,vegeu també,enllaços externs,bibliografia,notes",
    "cs": "reference,související články,externí odkazy,literatura,poznámky,odkazy,zdroje,galerie",
    "da": "referencer,se også,eksterne henvisninger,litteratur,noter,kilder",
    "de": "siehe auch,weblinks,weblink,literatur,einzelnachweise,einzelnachweis,quellen,fußnoten,"
    "anmerkungen,belege,literatur und quellen,anmerkungen und einzelnachweise,nachweise,galerie",
    "el": "παραπομπές,δείτε επίσης,εξωτερικοί σύνδεσμοι,βιβλιογραφία,σημειώσεις,πηγές",
    "es": "véase también,referencias,enlaces externos,bibliografía,notas,notas y referencias,"
    "fuentes,referencias y notas,lectura adicional,lecturas adicionales,galería",
    "fa": "منابع,جستارهای وابسته,پیوند به بیرون,پانویس,یادداشت‌ها,کتاب‌شناسی,نگارخانه",
    "fi": "lähteet,katso myös,aiheesta muualla,viitteet,kirjallisuutta,kirjallisuus,huomautukset",
    "fr": "voir aussi,notes et références,références,liens externes,lien externe,bibliographie,"
    "notes,articles connexes,sources,annexes,notes,références et notes,galerie",
    "he": "הערות שוליים,ראו גם,קישורים חיצוניים,לקריאה נוספת,מקורות,גלריה",
    "hu": "jegyzetek,források,további információk,kapcsolódó szócikkek,lásd még,külső hivatkozások,"
    "irodalom",
    "id": "referensi,lihat pula,lihat juga,pranala luar,catatan kaki,catatan,daftar pustaka,"
    "bacaan lanjutan,rujukan,galeri",
    "it": "note,bibliografia,voci correlate,altri progetti,collegamenti esterni,riferimenti,fonti,"
    "collegamenti,riferimenti bibliografici,note bibliografiche,galleria fotografica,"
    "galleria d'immagini,galleria di immagini,galleria immagini,galleria,immagini",
    "ja": "脚注,外部リンク,関連項目,出典,注釈,参考文献,注,註,註釈,脚注・出典,注釈・出典,参考資料,"
    "関連文献,関連書籍,引用文献,参照,注・出典,出典・脚注,脚註,参考図書,参考書籍,主要参考文献,関連リンク,"
    "外部サイト,リンク,備考・出典,ギャラリー,画像,出典・参考文献,参考文献・出典,注釈と出典,出典・注釈",
    "ko": "각주,같이 보기,외부 링크,바깥 고리,참고 문헌,참고문헌,출처,주석,관련 항목,참고 자료",
    "nl": "zie ook,externe links,externe link,literatuur,bronnen,referenties,noten,voetnoten,"
    "bronnen en referenties,noten en referenties,galerij",
    "no": "referanser,se også,eksterne lenker,litteratur,noter,kilder",
    "pl": "przypisy,zobacz też,bibliografia,linki zewnętrzne,uwagi,literatura,galeria",
    "pt": "ver também,referências,ligações externas,bibliografia,notas,notas e referências,"
    "leitura adicional,fontes,links externos,ver tambem,galeria",
    "ro": "note,vezi și,legături externe,bibliografie,referințe,lectură suplimentară",
    "ru": "см. также,примечания,литература,ссылки,источники,сноски,комментарии,галерея",
    "sv": "referenser,se även,externa länkar,källor,litteratur,noter,vidare läsning,fotnoter",
    "tr": "kaynakça,ayrıca bakınız,dış bağlantılar,notlar,kaynaklar,dipnotlar,"
    "konuyla ilgili yayınlar",
    "uk": "див. також,примітки,література,посилання,джерела,виноски,галерея",
    "vi": "tham khảo,xem thêm,liên kết ngoài,chú thích,ghi chú,đọc thêm,thư mục,nguồn,hình ảnh",
    "zh": "参考文献,參考文獻,外部链接,外部連結,外部連接,参见,參見,注释,註釋,参考资料,參考資料,"
    "相关条目,相關條目,脚注,腳註,参考,參考,延伸阅读,延伸閱讀,扩展阅读,备注,備註,来源,來源,图片,图集",
}

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

# Written without spaces between words: lines are joined without one.
SPACELESS = frozenset({"ja", "zh", "th", "lo", "km", "my"})


def namespace_words(language: str) -> frozenset[str]:
    """Names of the namespaces whose links vanish, in English and in `language`."""
    words = f"{DROPPED_NAMESPACES['en']} {DROPPED_NAMESPACES.get(language, '')}"
    return frozenset(word.replace("_", " ") for word in words.split())


def closing_titles(language: str) -> frozenset[str]:
    """Titles of sections without text, in English and in `language`."""
    titles = f"{CLOSING_SECTIONS['en']},{CLOSING_SECTIONS.get(language, '')}"
    return frozenset(title.strip() for title in titles.split(",") if title.strip())


@dataclass(frozen=True, slots=True)
class WikiMarkup:
    """What differs between wikis. Immutable, hashable, picklable; made by `markup_for`."""

    language: str
    """ISO 639 code: which templates there are, and how numbers are written."""

    dropped_namespaces: frozenset[str]
    """Lower-cased names of namespaces whose links vanish (pictures, categories)."""

    closing_titles: frozenset[str]
    """Lower-cased titles of the sections that hold references and links only."""

    spaceless: bool
    """Written without spaces between words."""


def markup_for(language: str, namespaces: Mapping[int, str] | None = None) -> WikiMarkup:
    """The markup of a wiki.

    Args:
        language: ISO 639 code, e.g. `en` or `zh-min-nan` (its first part decides). A language
            that bertloom has no words for is read with the English ones.
        namespaces: number to local name, as the dump's `<siteinfo>` lists them.
    """
    base = language.split("-", maxsplit=1)[0].lower()
    local = {
        (namespaces or {}).get(number, "").replace("_", " ").lower()
        for number in (*FILE_NUMBERS, CATEGORY_NUMBER)
    }
    return WikiMarkup(
        language=base,
        dropped_namespaces=namespace_words(base) | (local - {""}),
        closing_titles=closing_titles(base),
        spaceless=base in SPACELESS,
    )
