"""Several writers at once, on Azure's storage; all of ``tests/tables`` in a deep run."""

from tests.choices import DEEP

if DEEP:
    from tests.tables.test_writers_at_once import *  # noqa: F403 - With other fixtures.
else:
    from tests.tables.test_writers_at_once import (  # noqa: F401 - With other fixtures.
        table,
        test_a_commit_that_began_before_a_rescale_and_completed_after_it_goes_with_it,
        test_a_commit_that_died_after_it_took_its_turn_is_finished_or_passed_over,
        test_the_second_of_two_writers_of_one_bucket_is_refused_and_both_instants_are_named,
    )
