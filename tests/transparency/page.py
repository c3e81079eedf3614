"""Writes docs/TRANSPARENCY.md. Nothing in it differs from run to run as long as the guard behaves the same."""

from differences import DIFFERENCES

INTRODUCTION = """# Transparency

Made by `cargo xtask transparent`. The rule: **between a host and a server that understand each other, the guard is invisible until something breaks.**

Every scenario below is played by a host with a server, direct and through `everlink guard`, over stdio and over HTTP. Taps log each JSON message next to the host
and next to the server. What each end sees with the guard is compared with what it sees without: every request, reply and notification in both
directions, numbers to the last digit. Only ids, progress tokens and the order of independent messages may differ.
A difference that is not in the list here makes the run fail.
"""


def page(pairs, scenarios, hosts, servers, transports):
    found = {row for pair in pairs for _, row in pair.found}
    numbers = {row: number for number, row in enumerate((row for row in DIFFERENCES if row in found), 1)}
    lines = [INTRODUCTION]
    for transport in transports:
        of_transport = {(pair.host[0], pair.server[0]): pair for pair in pairs if pair.transport == transport}
        if not of_transport:
            continue
        lines.append(f"## Over {TITLES[transport]}\n")
        lines.append(
            "Numbers are those of the differences below. A dash means that nothing differs, `not direct either` that host and server do not get through "
            "the first scenario without a guard.\n"
        )
        lines.append("| host \\ server | " + " | ".join(server[1] for server in servers) + " |")
        lines.append("|---" * (len(servers) + 1) + "|")
        for host in hosts:
            cells = [cell(of_transport.get((host[0], server[0])), numbers) for server in servers]
            lines.append(f"| {host[1]} | " + " | ".join(cells) + " |")
        lines.append("")
        if ("raw", "raw") in of_transport:
            lines.append(f"A host and a server without a library, which can write every value: {cell(of_transport['raw', 'raw'], numbers)}.\n")
    lines.append("## Differences\n")
    lines.append("| | what | status | why |")
    lines.append("|---|---|---|---|")
    for row, number in numbers.items():
        lines.append(f"| {number} | {row.name} | {row.status} | {row.reason} |")
    lines.append("\n## Scenarios\n")
    lines.append(
        "Each library plays what it can: where a library has no way to send something, the scenario compares what it does instead. "
        "Messages of 4 MB and more are played only where host and server are of the same library.\n"
    )
    lines.append("| scenario | what is played |")
    lines.append("|---|---|")
    lines.append("| start | the handshake: identity, capabilities, experimental ones and extensions, instructions |")
    for scenario in scenarios:
        lines.append(f"| {scenario['name']} | {scenario['about']} |")
    return "\n".join(lines) + "\n"


TITLES = {"stdio": "stdio: `everlink guard -- COMMAND`", "http": "HTTP: `everlink guard --listen URL --url URL`"}


def cell(pair, numbers):
    if pair is None:
        return ""
    if not pair.works_direct:
        return "not direct either"
    found = sorted({numbers[row] for _, row in pair.found if row})
    words = [str(number) for number in found]
    if any(row is None for _, row in pair.found):
        words.append("UNKNOWN")
    return ", ".join(words) or "–"
