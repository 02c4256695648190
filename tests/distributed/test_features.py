from tests.distributed import tasks


def test_rows_go_to_their_owners_and_come_back(crew):
    for size in (1, 3):
        assert all(crew.run(size, tasks.there_and_back))


def test_the_wrong_number_of_rows_is_refused_on_all(crew):
    for good, error in crew.outcomes(2, tasks.wrong_features):
        assert not good
        assert "features must have 4 rows on process 0, got (3, 2)" in error
