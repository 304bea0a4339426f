"""Groups of words whose rates are features, in the eleven languages of the training data. Pure."""

from __future__ import annotations

import re


def _words(*words: str, also: str = "", within: str = "") -> re.Pattern[str]:
    """Match whole words: English `words`, `also` those of other languages; `within`: parts of unspaced scripts."""
    spaced = rf"\b(?:{'|'.join([*words, *also.split()])})\b"
    return re.compile(spaced + (f"|{'|'.join(within.split())}" if within else ""))


# Counted in the lower-cased text, per word. The groups that carry most are also given in the other languages of the
# training data (de, fr, es, it, pt, then zh, ja, ko, ar, hi), so that what English rows teach holds there too.
WORD_GROUPS: dict[str, re.Pattern[str]] = {
    "what": _words(
        "what",
        "what's",
        "whats",
        also="was quel quelle quelles quels qué cuál che qual quale quali cosa que",
        within="什么 何 무엇 क्या",
    ),
    "which": _words(
        "which",
        also="welche welcher welches welchem welchen lequel laquelle cuáles quais",
        within="哪 どの どちら 어느 어떤 कौन",
    ),
    "who_when_where": _words(
        "who",
        "whose",
        "whom",
        "when",
        "where",
        also="wer wann wo qui quand où quién cuándo dónde chi quando dove quem onde من متى أين",
        within="谁 何时 哪里 誰 いつ どこ 누구 언제 어디 किस कब कहाँ",
    ),
    "why": _words(
        "why",
        "how come",
        also="warum weshalb wieso pourquoi por\\s+qu[eé] perché porquê لماذا",
        within="为什么 为何 なぜ どうして 왜 क्यों",
    ),
    "how_to": _words(
        "how (?:do|does|did|can|could|should|would|to|is|are)",
        also="wie comment cómo come como كيف",
        within="如何 怎么 怎样 どう どのよう 어떻게 कैसे",
    ),
    "how_many": _words(
        "how (?:many|much|long|old|far|often|big|large|fast|tall|high)",
        also="wieviel wieviele combien cuánto cuántos cuánta cuántas quanto quanti quante quanta quantos quantas كم",
        within="多少 几 いくつ 何個 何年 몇 कितन",
    ),
    "yes_no": re.compile(r"^(?:is|are|was|were|do|does|did|can|could|has|have|will|would|should|must)\b"),
    "if": _words(
        "if",
        "whether",
        "suppose",
        "assume",
        "assuming",
        "given",
        "unless",
        "let",
        also="wenn ob falls angenommen sei si se suponga soit sia seja إذا",
        within="如果 假设 若 もし とする 만약 यदि अगर",
    ),
    "prove": _words(
        "prov(?:e|es|ing|en)",
        "proof",
        "show that",
        "deriv(?:e|es|ing|ation)",
        "disprove",
        also=(
            "beweise beweisen zeige zeigen herleiten leite démontrer démontrez prouver montrer "
            "demuestra demostrar demuestre dimostra dimostrare dimostri prove demonstre demonstrar أثبت برهن"
        ),
        within="证明 推导 証明 導出 示せ 증명 유도 सिद्ध",
    ),
    "compute": _words(
        "calculate",
        "compute",
        "find",
        "determine",
        "solve",
        "evaluate",
        "estimate",
        "convert",
        also=(
            "berechne berechnen bestimme bestimmen löse calculer calculez déterminer résoudre "
            "calcula calcular calcule calcola calcolare resuelve resolver trova احسب أوجد"
        ),
        within="计算 求 解 計算 求め 계산 구하 गणना ज्ञात",
    ),
    "explain": _words(
        "explain",
        "describe",
        "summari[sz]e",
        "outline",
        "discuss",
        "compare",
        "illustrate",
        also=(
            "erkläre erklären beschreibe vergleiche expliquer expliquez décrire comparer "
            "explica explicar explique compara spiega spiegare descrivi اشرح قارن"
        ),
        within="解释 说明 比较 説明 比較 설명 비교 समझा वर्णन तुलना",
    ),
    "name": _words(
        "name",
        "list",
        "define",
        "state",
        "called",
        "known as",
        "stand for",
        "stands for",
        "abbreviation",
        also="heißt nenne nennt abkürzung appelle nommer llama nombre chiama chiamato chama nome يسمى",
        within="叫 称为 名称 と呼 名前 이름 부르 नाम कहते",
    ),
    "definition": _words(
        "definition",
        "meaning",
        "mean",
        "means",
        "symbol",
        "unit",
        "formula",
        "year",
        "capital",
        "term",
        also=(
            "bedeutet bedeutung einheit symbol hauptstadt jahr signifie unité année capitale "
            "significa unidad año unità anno unidade ano وحدة عاصمة رمز"
        ),
        within="意思 单位 符号 定义 意味 単位 記号 定義 뜻 단위 기호 정의 अर्थ इकाई",
    ),
    "design": _words(
        "design",
        "build",
        "architect(?:ure)?",
        "propose",
        "plan",
        "develop",
        "devise",
        "strategy",
        "policy",
        also=(
            "entwirf entwerfen entwickle plane concevoir proposer concevez diseña "
            "diseñar proponga progetta progettare proponi projete projetar صمم اقترح"
        ),
        within="设计 提出 方案 設計 提案 설계 제안 डिज़ाइन",
    ),
    "judge": _words(
        "best",
        "better",
        "worth",
        "trade-?offs?",
        "versus",
        "vs",
        "should",
        "right",
        "reasonable",
        "sound",
        also=(
            "besser beste sollte lohnt meilleur mieux faut mejor "
            "debería meglio migliore conviene dovrebbe melhor vale deveria أفضل"
        ),
        within="更好 最好 应该 值得 べき 最適 良い 낫 최선 바람직 बेहतर चाहिए",
    ),
    "cause": _words(
        "because",
        "cause[sd]?",
        "due to",
        "reasons?",
        "explains?",
        "explanation",
        "plausible",
        "therefore",
        also="weil ursache grund parce cause raison porque causa razón motivo perché بسبب",
        within="因为 原因 导致 原因 理由 ため 때문 이유 원인 कारण",
    ),
    "failure": _words(
        "fail(?:s|ed|ure)?",
        "errors?",
        "wrong",
        "crash(?:es|ed)?",
        "broken",
        "bug",
        "hangs?",
        "slow",
        also="fehler falsch scheitert langsam erreur échoue error falla fallo errore fallisce lento erro falha خطأ",
        within="错误 失败 崩溃 エラー 失敗 誤り 오류 실패 त्रुटि",
    ),
    "contrast": _words(
        "but",
        "although",
        "though",
        "however",
        "yet",
        "still",
        "despite",
        "while",
        "even",
        "only",
        "instead",
        also=(
            "aber obwohl jedoch trotzdem nur mais bien pourtant malgré pero aunque ma anche però benché mas embora لكن"
        ),
        within="但 虽然 却 只 しかし だが のに 하지만 지만 लेकिन",
    ),
    "negation": _words(
        "no",
        "not",
        "never",
        "none",
        "nor",
        "without",
        "cannot",
        r"\w+n['’]t",
        also="nicht kein keine nie ohne pas sans jamais ne non senza mai no sin nunca não sem لا ليس بدون",
        within="不 没 ない ず 않 없 नहीं",
    ),
    "possible": _words(
        "could",
        "might",
        "may",
        "possible",
        "possibly",
        "ever",
        "really",
        "actually",
        "likely",
        "would",
        also=(
            "könnte kann vielleicht möglich pourrait peut possible podría puede "
            "posible potrebbe può possibile poderia pode possível هل يمكن"
        ),
        within="可能 能否 会不会 かもしれ 可能 でき 있을 가능 सकत",
    ),
    "every": _words(
        "all",
        "every",
        "any",
        "each",
        "always",
        "both",
        "either",
        "arbitrary",
        "general",
        "finite",
        "infinite",
        also="alle jede jeder jedes tout tous toute toutes todo todos toda todas ogni tutti tutte qualquer جميع",
        within="所有 任意 每 すべて 任意 모든 임의 सभी",
    ),
    "degree": _words("more", "most", "less", "least", "fewer", "few", "many", "much", "too", "enough"),
    "between": _words(
        "difference",
        "differ",
        "between",
        "relation(?:ship)?",
        "related",
        "affects?",
        "effects?",
        "influence",
        also="unterschied zwischen différence entre diferencia differenza tra fra diferença بين الفرق",
        within="区别 之间 关系 違い 間 関係 차이 사이 관계 अंतर बीच",
    ),
    "evidence": _words("evidence", "study", "studies", "data", "results?", "research", "theory", "hypothesis", "model"),
    "person": _words("i", "i'm", "i've", "my", "me", "we", "our", "us"),
    "you": _words("you", "your", "please"),
    "this": _words("this", "that", "these", "those", "it", "its", "they", "their", "them"),
    "article": _words("the", "a", "an"),
    "preposition": _words(
        "of", "in", "on", "at", "by", "for", "with", "from", "to", "into", "over", "under", "through"
    ),
    "and": _words("and", "or"),
    "be": _words("is", "are", "was", "were", "be", "been"),
    "steps": _words("steps?", "method", "procedure", "using", "use", "used", "example", "standard", "basic", "simple"),
    "open": _words(
        "new", "novel", "open", "unknown", "future", "limits?", "fundamental", "truly", "account", "reconcile"
    ),
}
