"""A history with a fault in it must be caught; one without must pass."""
import copy
import unittest

from check import check

ANSWER = {"payload": "usual", "run": "r1"}
HISTORY = [
    {"client": 1, "key": "k1", "payload": "usual", "way": "tx", "lost": "died"},
    {"client": 1, "key": "k1", "payload": "usual", "way": "tx", "status": 201, "body": ANSWER, "replayed": True},
    {"client": 2, "key": "k1", "payload": "other", "way": "tx", "status": 422, "body": {}, "replayed": False},
    {"client": 2, "key": "k1", "payload": "usual", "way": "tx", "status": 409, "body": {}, "replayed": False},
    {"client": 2, "key": "k2", "payload": "usual", "way": "savepoint", "status": 402, "body": {"payload": "usual", "declined": "d"}, "replayed": False},
    {"client": 3, "key": "k3", "payload": "usual", "way": "lease", "sqlstate": "ID004"},
    {"client": 3, "key": "k1", "payload": "usual", "way": "tx", "sqlstate": "57P01"},
]
EFFECTS = [{"key": "k1", "payload": "usual", "run": "r1"}]
KEYS = [
    {"key": "k1", "status": "completed", "response_status": 201, "response_body": ANSWER},
    {"key": "k2", "status": "completed", "response_status": 402, "response_body": {"payload": "usual", "declined": "d"}},
    {"key": "k3", "status": "in_progress", "response_status": None, "response_body": None},
]


class Checker(unittest.TestCase):
    def setUp(self):
        self.history, self.effects, self.keys = (copy.deepcopy(part) for part in (HISTORY, EFFECTS, KEYS))

    def finds(self, words):
        findings = check(self.history, self.effects, self.keys)
        self.assertTrue(any(words in finding for finding in findings), findings)

    def test_nothing_in_an_honest_history(self):
        self.assertEqual(check(self.history, self.effects, self.keys), [])

    def test_a_double(self):
        self.effects.append({"key": "k1", "payload": "usual", "run": "r2"})
        self.finds("2 effects")

    def test_a_lost_key(self):
        del self.keys[0]
        self.finds("an effect without a completed key")
        self.finds("an answer was given and is not stored")

    def test_a_lost_effect(self):
        self.effects.clear()
        self.finds("a completed key without its effect")

    def test_an_effect_of_a_key_that_is_in_progress(self):
        self.effects.append({"key": "k3", "payload": "usual", "run": "r3"})
        self.finds("an effect without a completed key")

    def test_an_effect_that_was_to_be_undone(self):
        self.effects.append({"key": "k2", "payload": "usual", "run": "r3"})
        self.finds("not the one of the stored answer")

    def test_a_changed_answer(self):
        self.history.append({**self.history[1], "body": {"payload": "usual", "run": "r9"}})
        self.finds("two different answers")
        self.finds("the stored answer is not the one that was given")

    def test_the_answer_of_another_request(self):
        self.history.append({**self.history[1], "payload": "other"})
        self.finds("the answer of another request")

    def test_an_honest_retry_that_is_refused(self):
        self.history.append({**self.history[2], "payload": "usual"})
        self.finds("an honest retry was refused")

    def test_an_unknown_answer(self):
        self.history.append({**self.history[3], "status": 500})
        self.finds("does not know the answer 500")

    def test_an_unknown_error(self):
        self.history.append({**self.history[6], "sqlstate": "23505"})
        self.finds("error 23505")

    def test_a_stale_token_where_there_is_no_lease(self):
        self.history.append({**self.history[6], "sqlstate": "ID004"})
        self.finds("error ID004")

    def test_a_key_that_is_stored_twice(self):
        self.keys.append(copy.deepcopy(self.keys[0]))
        self.finds("stored twice")


if __name__ == "__main__":
    unittest.main()
