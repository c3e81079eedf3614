"""What the comparison must find, and what it must not mind. `suite.py` runs this first."""

import tempfile
import unittest
from pathlib import Path

from compare import bridged, compared
from differences import KNOWN, reason, row
from messages import read

CALL = ("host", '{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":TOKEN}}}')
PROGRESS = ("server", '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":TOKEN,"progress":1.0}}')
REPLY = ("server", '{"jsonrpc":"2.0","id":ID,"result":{"a":1.0,"b":"\\u00e9"}}')
CANCEL = ("host", '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}')
FIRST = ("server", '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}')
SECOND = ("server", '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":2}}')


def items(*records, number="1", token="7"):
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        texts = [(sender, text.replace("ID", number).replace("TOKEN", token).encode()) for sender, text in records]
        log.write_bytes(b"".join(b"%s %d\n%s\n" % (sender.encode(), len(text), text) for sender, text in texts))
        return read(log)


def found(direct, guarded):
    return [str(difference) for difference in compared("host", direct, guarded)]


class Comparison(unittest.TestCase):
    def test_ids_and_tokens_are_free(self):
        direct = items(CALL, PROGRESS, REPLY, CANCEL)
        self.assertEqual(found(direct, items(CALL, PROGRESS, REPLY, CANCEL, number='"text"', token='"t"')), [])

    def test_escapes_of_text_are_free_and_spellings_of_numbers_are_not(self):
        other = ("server", REPLY[1].replace("\\u00e9", "é").replace("1.0", "1"))
        self.assertEqual(found(items(CALL, REPLY), items(CALL, other)), ["host [start] host: tools/call reply.result.a changed"])

    def test_what_is_missing_or_added_is_found(self):
        self.assertEqual(found(items(FIRST), items()), ["host [start] server: notifications/message missing"])
        self.assertEqual(found(items(), items(CALL)), ["host [start] host: tools/call added"])
        self.assertEqual(found(items(CALL, REPLY), items(CALL)), ["host [start] host: tools/call reply missing"])

    def test_a_second_reply_and_a_reply_to_nothing_are_found(self):
        self.assertIn("host [start] host: tools/call reply 2 added", found(items(CALL, REPLY), items(CALL, REPLY, REPLY)))
        self.assertEqual(found(items(), items(REPLY)), ["host [start] server: (reply to nothing) added"])

    def test_progress_after_the_reply_is_found(self):
        self.assertNotEqual(found(items(CALL, PROGRESS, REPLY), items(CALL, REPLY, PROGRESS)), [])

    def test_the_order_of_notifications_of_one_kind_counts(self):
        self.assertEqual(found(items(FIRST, SECOND), items(SECOND, FIRST)), ["host [start] server: notifications/message order changed"])
        self.assertEqual(found(items(CALL, FIRST, REPLY), items(FIRST, CALL, REPLY)), [])

    def test_another_era_is_one_difference(self):
        legacy = items(("host", '{"id":1,"method":"initialize"}'), ("server", '{"id":1,"result":{"protocolVersion":"2025-11-25"}}'))
        modern = items(("host", '{"id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'))
        self.assertEqual(len(bridged("host", legacy, modern)), 1)
        self.assertEqual(bridged("host", legacy, legacy), [])

    def test_a_row_fits_what_it_names_and_nothing_else(self):
        known = row("name", KNOWN, "why", "host [*] host: tools/call progress[*].total changed")
        self.assertTrue(known.fits(["host [x] host: tools/call progress[0].total changed"]))
        self.assertFalse(known.fits(["host [x] host: tools/call reply.result missing"]))
        self.assertIsNone(reason("host [tools] host: tools/call reply.result.content missing"))


if __name__ == "__main__":
    unittest.main()
