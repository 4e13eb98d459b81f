"""Texts that no language puts together are seen; sound ones in any language, and code, are not."""
# ruff: noqa: RUF001 - letters of many scripts stand here on purpose

import pytest

from firstlight.serve.detectors import findings


def kinds(text: str) -> set[str]:
    return {finding.kind for finding in findings(text)}


SCRIPTS = "mixed scripts"
WORDS = "word salad"
THROWN = (
    "river stone gave small lamp over stone gave river lamp small over lamp stone river over gave "
    "small stone lamp over river small gave lamp over stone small river gave over lamp river stone "
    "small over gave river stone over lamp gave small river lamp stone over small gave lamp river "
    "gave stone over river lamp small gave over small stone river over stone lamp small lamp gave "
    "over river gave lamp stone small river small stone over gave lamp lamp over small river stone"
)
BARE = (
    "lamp harvest tremble oxide civic momentum parking quip spread clamp vertical insight dozen "
    "offset glad chamber hip medium foam gather kinder ascend define iron gap floor roll "
    "characteristic generate fit bottle mass atom bin board presence capable form revolve "
    "trans upper bind origin entertain feldspar ham pleasant escape card buttress cave domain "
    "arrow multiply gradual fill mystic walker coagulate pool sober gain prompt face delicate"
)
BROKEN = {
    "Der Wegпол geht überчас den Berg": SCRIPTS,
    "Вот словоمشكل и дальше": SCRIPTS,
    "يمكن استخدام задачة هنا ثم هناك": SCRIPTS,
    "the lamp ดาร went 崖耕地 by окно and семь under 価格 oldлист house": SCRIPTS,
    "glowラcat 12тoпdoor": SCRIPTS,
    "lampHouse oldstoneGiven riverMetadata overgaveField smallAuthHeader thinColorsWide stem brook "
    "under glare mindful oar": WORDS,
    "Riverstonegavesmalllampoverandunderthehouse tou lamp grieved hols prvin": WORDS,
    THROWN: WORDS,
    BARE: WORDS,
    "<N4<R&LNE:C6.CM>E\"FH5>RC6Q!A1+-C-1D<=;KN&.9A>)%E+C3$1RHK'M=3BF": WORDS,
    "He kept ingotingotingotingotingotingot on": "loop",
    "Hello!ĠHowĠcanĠIĠhelp?": "raw pieces of tokens",
    "It▁is▁a▁fine▁day": "raw pieces of tokens",
    "FÃ¼r KÃ¶ln und MÃ¼nchen": "mojibake",
    "It â€œisâ€¦ what itâ€™s": "mojibake",
}


@pytest.mark.parametrize(("text", "kind"), BROKEN.items(), ids=[repr(t[:24]) for t in BROKEN])
def test_broken_texts(text: str, kind: str) -> None:
    assert kind in kinds(text)


SOUND = [
    "使用Python编写脚本, 再用GPU训练; 結果はNumPyで読む。",
    "파이썬의 list를 정렬하려면 sort()를, 사전은 привет처럼 씁니다.",
    "Новый GPUшный сервер и абсолютныйURI, затем относительныйURI.",
    "مثال: نستخدم Python ثم API في الخادم.",
    "Δx = 2πr and μm; λ-calculus, αβ pruning",
    "Hello in five languages: Привет, 你好, こんにちは, مرحبا, שלום, สวัสดี",
    "English Русский 中文 العربية हिन्दी 한국어",
    "हम Python और GPU का उपयोग करते हैं।",
    "const fooBarBaz = getElementById('x').innerHTML; return fooBarBazQux(fooBar, barBaz);",
    "JavaScript, TypeScript, GitHub, PyTorch, OpenAI, YouTube, PostgreSQL, LaTeX, MacBook",
    "Das längste Wort ist Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz.",
    r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2})\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2})$",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "hahahahahahahahahahahahahaha",
    "Iż-żgħażagħ tal-Ġnien, il-Ġimgħa u Ġorġ",
    "load ▁▂▃▅▇ and ▇▅▃▂▁",
    "NÃO É ASSIM, MÃE E IRMÃ; PÃO",
    "9e107d9d372bb6826bd81d3542a419d6  d41d8cd98f00b204e9800998ecf8427e",
    "SGVsbG8sIFdvcmxkISBUaGlzIGlzIGEgdGVzdCBvZiBiYXNlNjQgZW5jb2Rpbmcu",
    "The mark `Ġ` is a blank: `HelloĠworldĠandĠmoreĠofĠit`.",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    "<|tool_call_begin|>now<|tool_call_end|>",
    "\n".join(f"{a} x {b} = {a * b}" for a in range(1, 10) for b in range(1, 10)),
    "\n".join(" ".join("T" if row >> bit & 1 else "F" for bit in range(4)) for row in range(16)),
    "right, right, down, left, " * 3 + "up",
    "getElementById\nquerySelectorAll\naddEventListener\nremoveChild\nappendChild\nsetText\n" * 3,
    "YouTube TikTok LinkedIn WhatsApp PayPal DreamWorks MasterCard PlayStation",
    "Rechtsschutzversicherungsgesellschaft\nKraftfahrzeughaftpflichtversicherung\n" + "Haus\n" * 4,
    " ".join(sorted(set(BARE.split()))),
    "\n".join(BARE.split()),
    "<\uff5ctool\u2581calls\u2581begin\uff5c>now<\uff5ctool\u2581calls\u2581end\uff5c>",
    " ".join(word.capitalize() for word in BARE.split()),
    "Rechtsschutzversicherungsgesellschaften Haus Hof Garten Tor Weg Bahn",
    "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "X7#P!9Q@2L$5R^8Z&T*4Y(6)N_3+B=1{D}|:J~0;",
]  # fmt: skip


@pytest.mark.parametrize("text", SOUND, ids=lambda text: repr(text[:24]))
def test_sound_texts(text: str) -> None:
    assert findings(text) == ()
