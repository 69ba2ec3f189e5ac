"""Checks the language of the project: comments, messages, help and documents, and names of types.

The standard is plain technical English (CONTRIBUTING.md, "Language"). This finds the patterns that can be found by a
regular expression; the rest is up to the reader. Prints one line for each finding: FILE:LINE: what it is.
"""

import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

FOLDERS = ["src", "sim", "python", "web", "bench", "fuzz", "docs", "cmake"]
FILES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "dev", "CMakeLists.txt", "pyproject.toml"]

# What is wrong -> pattern. A pattern is searched in each sentence of prose, without regard to line breaks.
PATTERNS = {
    "an actor without a name": r"\b(?:[Ss]omebody|[Ss]omeone|[Nn]obody|[Ww]hoever|[Ww]homever|[Ee]verybody|[Ee]veryone|[Aa]nybody|[Aa]nyone)\b",
    "'who' as a subject": r"(?:^|[.:;(–] ?|\b(?:for|by|of|to|from|and|than|as|but|only|if|that) )(?:Who|who)\b(?![^.;]*\?)",
    "'he', 'his', 'him'": r"\b(?:[Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b",
    "'one' as a subject": r"\b[Oo]ne (?:can|cannot|must|may|has|had to|could|should|would|needs|knows|wants|sees)\b(?! (?:been|a|an|the|its)\b)",
    "'to be had'": r"\b(?:is|are|was|were) to be had\b",
    "'is no X', 'is none'": r"\b(?:[Ii]s|[Aa]re|[Ww]as|[Ww]ere|[Bb]e) (?:no|none)\b(?! (?:longer|more than|less than|later than|earlier than|larger than|older than))(?<!there is no)(?<!there is none)(?<!There is none)(?<!there are none)(?<!There is no)(?<!there are no)(?<!There are no)(?<!there was no)(?<!there were no)",
    "'will do', 'would do'": r"\b(?:will|would|does) (?:not )?do(?=[,.;:)]|$)",
    "a process is not a person": r"\b(?:hears?|heard|hearing|speaks?|spoke|teach(?:es)?|taught|tells? of|told of|last words|is born|was born)\b",
}

# Names that were replaced, and must not come back.
OLD_NAMES = re.compile(r"\b(?:" + "|".join("""
    Looker Lookout Speaker Desk SharedSlip Slip Ear Audience PictureBoard Picture Tally HostTally PastAsked CommandsOf Poke Pace Voyage Elsewhere
    Parcel RoamingTicket HostPart PartSight HostSight HostCard PartEntry PartChange PartOutcome PartCard Oddity Scene make_scene PlacedGpu
    PlacedProcess Ledger read_ledger Judgement Hindrance Obstacle Settled Applicant Acquiring Deciding Gathering Growing Adding make_ask Spelling
    Lesson Verdict judge_end start_successor LastWords RunTeller Errand Wish obey Deeds Farewell meaning_of wordless url_behind
    belong_to_program unheard_for is_owners_doing knows_more LeaseFacts Attention hopeful_scene words_to_run beat_news
    """.split()) + r")\b")

# Justified exceptions: a regular expression of the path, one of the sentence, and why.
EXCEPTIONS = [
    (r".*", r"\buser 'nobody'|\bnobody\b(?=[\"`:@])|[\"'`]nobody[\"'`]", "the account of that name"),
    (r"tests/tools/prose\.py", r".*", "the patterns themselves"),
    (r"src/cluster/store/redis_\w+\.(?:h|cpp)", r"\bheard\b", "a key of the Redis protocol, and a reply of its script"),
    (r"src/serve/systemd_unit\.cpp|web/filter\.js", r"^nobody$", "the account of that name"),
]

CPP_TOKEN = re.compile(
    r'R"([^()\\ ]{0,16})\((?P<raw>(?:.|\n)*?)\)\1"|"(?P<string>(?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])\'|//(?P<line>[^\n]*)|/\*(?P<block>(?:.|\n)*?)\*/')
C_LIKE = {".cpp", ".h", ".js", ".mjs", ".css"}


def pieces_of_c(text):
    """Comments and string literals, as (offset, text); neighbours that read as one sentence are joined by the caller."""
    for match in CPP_TOKEN.finditer(text):
        for group in ("raw", "string", "line", "block"):
            if match.group(group):
                yield match.start(group), group, match.group(group)


def pieces_of_python(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield starts[token.start[0] - 1] + token.start[1], "line", token.string.lstrip("#")
    except (tokenize.TokenError, IndentationError):
        yield 0, "block", text


def pieces(path, text):
    if path.suffix in C_LIKE:
        return list(pieces_of_c(text))
    if path.suffix == ".py":
        return list(pieces_of_python(text))
    if path.suffix in (".md", ".html"):
        return [(0, "block", text)]
    # Shell, CMake, TOML: comments, and the words of the help.
    return [(0, "block", text)]


def passages(path, text):
    """Prose with the offset where it begins. Line comments and string literals that follow each other are one passage."""
    last_end, joined = None, None
    for offset, kind, piece in pieces(path, text):
        between = text[last_end:offset] if last_end is not None else None
        continues = joined is not None and re.fullmatch(r'"?\s*(?://|")?\s*', between or "x") is not None
        if continues:
            # Keeps offsets: what lies between is replaced by blanks.
            joined = (joined[0], joined[1] + re.sub(r"[^\n]", " ", between) + piece)
        else:
            if joined:
                yield joined
            joined = (offset, piece)
        last_end = offset + len(piece)
    if joined:
        yield joined


def findings_in(path, name, text):
    for offset, passage in passages(path, text):
        # Addresses are not prose, nor is code in a document.
        prose = re.sub(r"https?://\S+" + (r"|`[^`\n]+`" if path.suffix == ".md" else ""),
                       lambda m: "_" * len(m.group()), passage)
        flat = re.sub(r"\s", " ", prose)
        for what, pattern in PATTERNS.items():
            for match in re.finditer(pattern, flat):
                around = flat[max(0, match.start() - 60):match.end() + 60]
                if any(re.fullmatch(file, name) and re.search(sentence, around) for file, sentence, _ in EXCEPTIONS):
                    continue
                line = text.count("\n", 0, offset + match.start()) + 1
                yield f"{name}:{line}: {what}: ...{around.strip()}..."


def old_names_in(name, text):
    for match in OLD_NAMES.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        around = text.splitlines()[line - 1].strip()
        # A word of English at the start of a sentence is not a name.
        if re.fullmatch(r"[A-Z][a-z]+", match.group()) and not re.search(rf"\b{match.group()}\b(?:[({{&*>:]|\s+\w+[;({{=,)])", around):
            continue
        yield f"{name}:{line}: the old name {match.group()}"


TYPE = re.compile(r"^(?:class|struct|enum class|enum|union) (\w+)(?: final)?(?:\s*:\s*[^:{;][^{;]*)?\s*\{", re.MULTILINE)


def repeated_types(root, files):
    """Types of one name in two files of src/."""
    where = collections.defaultdict(set)
    for name in files:
        if name.startswith("src/") and name.endswith((".h", ".cpp")) and not name.endswith("_test.cpp") and "/testing/" not in name:
            for match in TYPE.finditer((root / name).read_text()):
                where[match.group(1)].add(name)
    for type_name, places in sorted(where.items()):
        if len(places) > 1:
            yield f"{', '.join(sorted(places))}: {len(places)} types are called {type_name}"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
    wanted = [name for name in listed if name and (root / name).is_file() and not name.startswith("fuzz/corpus")
              and (name in FILES or name.split("/")[0] in FOLDERS)]
    only = sys.argv[1:]
    found = []
    for name in wanted:
        if only and not any(name == part or name.startswith(part.rstrip("/") + "/") for part in only):
            continue
        path = root / name
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix in (".svg", ".json", ".map", ".png") or "/vendor/" in name:
            continue
        found += findings_in(path, name, text)
        found += old_names_in(name, text)
    if not only:
        found += repeated_types(root, wanted)
    print("\n".join(found) or "prose: clean")
    if found:
        print(f"prose: {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
