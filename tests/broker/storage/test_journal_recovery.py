"""Cut or flip at every byte.

Recovery keeps every synced record before the damage, or refuses, naming file and offset.
"""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import DIRECTORY, SMALL, Model, add, delete, plain, update

from broker.storage import synced
from broker.storage.entry import HEADER_SIZE, MARK_SIZE, Operation, encode_entry, encode_mark
from broker.storage.errors import JournalDamagedError
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume
from broker.storage.synced import NAME as SYNCED


async def written(batches, options=SMALL, close=False):
    """(volume, model) of a journal that was crashed, or closed."""
    volume = MemoryVolume()
    journal, _ = await Journal.open(volume, DIRECTORY, options)
    model = Model()
    for batch in batches:
        for operations in batch:
            journal.append(operations)
            model.append(*operations)
        await journal.flush()
    if close:
        await journal.close()
    volume.crash(_Keep())
    return volume, model


class _Keep(random.Random):
    """A crash of the process alone: the operating system keeps what was written."""

    def choice(self, _):
        return "kept"


BATCHES = [
    [[add(1, b"a" * 40)], [add(2, b"b" * 5), add(3)]],
    [[update(1, b"seen")], [delete(2)]],
    [[add(4, b"d" * 700)]],
    [[add(5, b"e" * 300)], [update(4)], [update(4)]],
    [[delete(1)], [add(6, b"f" * 30), delete(3)]],
]


async def opened(image):
    """The state a damaged image opens to, as (records, torn); or the refusal."""
    try:
        journal, recovered = await Journal.open(MemoryVolume(image), DIRECTORY, SMALL)
        await journal.close()
    except JournalDamagedError as error:
        return error
    return recovered


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_at_every_byte_of_every_file(damage):
    chance = random.Random(1)

    async def main():
        volume, model = await written(BATCHES)
        image = volume.image()
        files = [path for path in image if not path.endswith(".lock")]
        assert sum(".seg" in path for path in files) >= 3
        states = model.states()
        outcomes = set()
        for path in files:
            for offset in range(len(image[path])):
                data = image[path]
                if damage == "cut":
                    broken = data[:offset]
                else:
                    broken = (
                        data[:offset] + bytes([data[offset] ^ chance.randrange(1, 256)]) + data[offset + 1 :]
                    )
                result = await opened({**image, path: broken})
                if isinstance(result, JournalDamagedError):
                    outcomes.add("refused")
                    assert result.path.startswith(DIRECTORY + "/")
                    assert f"{result.path} at offset {result.offset}" in str(result)
                    if result.path == path:
                        assert result.offset <= offset
                    else:  # what is missing from one segment shows in the next
                        assert damage == "cut"
                        assert result.path > path
                    continue
                outcomes.add("kept")
                # All of it had been synced, so whatever is accepted is all of it.
                assert states[repr(plain(result))] == result.last_sequence == len(model.entries)
                if path.endswith(".seg") and damage == "flip":
                    # Everything synced is followed by a mark: only the very last mark can be
                    # damaged unnoticed.
                    assert path == max(file for file in files if ".seg" in file)
                    assert offset >= len(data) - MARK_SIZE
                elif damage == "flip":
                    assert path.endswith(SYNCED)
        assert outcomes == {"refused", "kept"}

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=4), min_size=1, max_size=6),
    where=st.floats(0, 1, exclude_max=True),
    mask=st.integers(0, 255),
)
def test_damage_anywhere_in_any_journal(sizes, where, mask):
    async def main():
        ids = iter(range(1, 100))
        volume, model = await written([[[add(next(ids), b"z" * size)] for size in batch] for batch in sizes])
        image = volume.image()
        places = [
            (path, offset) for path, data in image.items() if ".seg" in path for offset in range(len(data))
        ]
        path, offset = places[int(where * len(places))]
        data = image[path]
        broken = data[:offset] + (bytes([data[offset] ^ mask]) + data[offset + 1 :] if mask else b"")
        result = await opened({**image, path: broken})
        if isinstance(result, JournalDamagedError):
            assert result.path in image
        else:
            assert model.states()[repr(plain(result))] == len(model.entries)

    asyncio.run(main())


@pytest.mark.parametrize("marks", ["kept", "gone", "damaged"])
def test_the_last_sector_of_what_was_synced_zeroed_is_no_torn_tail(marks):
    """Sixteen receipted messages were dropped as "never synced"."""

    async def main():
        volume, _ = await written(BATCHES)
        image = volume.image()
        last = max(path for path in image if ".seg" in path)
        image[last] = image[last][:-512] + bytes(512)
        note = f"{DIRECTORY}/{SYNCED}"
        if marks == "gone":
            del image[note]
        if marks == "damaged":
            image[note] = bytes(len(image[note]))
        return await opened(image)

    result = asyncio.run(main())
    if marks == "kept":
        assert isinstance(result, JournalDamagedError)
        assert "had been synced and cannot be read" in str(result)
    else:  # as in a journal that was written before there were marks
        assert result.torn is not None


def test_marks_without_a_journal_are_what_is_left_of_one():
    async def main():
        volume, _ = await written(BATCHES)
        note = f"{DIRECTORY}/{SYNCED}"
        return await opened({note: volume.image()[note]})

    result = asyncio.run(main())
    assert isinstance(result, JournalDamagedError)
    assert "entries 1 to 10 had been synced" in str(result)


def test_the_marks_begin_anew_before_they_are_many(monkeypatch):
    monkeypatch.setattr(synced, "SIZE_MAX", 100)

    async def main():
        volume, model = await written(BATCHES)
        journal, _ = await Journal.open(volume, DIRECTORY, SMALL)
        for _ in range(200):
            journal.append([add(journal.next_id(), b"x" * 300)])
            await journal.flush()
        await journal.close()
        assert len(volume.image()[f"{DIRECTORY}/{SYNCED}"]) < 500
        found = await synced.read_synced(volume, DIRECTORY)
        assert found.sequence == len(model.entries) + 200

    asyncio.run(main())


def test_a_disk_that_does_not_take_the_marks_costs_no_more_than_them(caplog):
    class Picky(MemoryVolume):
        def write(self, path, *rest):
            if path.endswith(SYNCED):
                raise OSError(28, "No space left on device")
            super().write(path, *rest)

    async def main():
        journal, _ = await Journal.open(Picky(), DIRECTORY, SMALL)
        for _ in range(20):
            journal.append([add(journal.next_id(), b"x" * 300)])
            await journal.flush()
        assert journal.synced == 20
        await journal.close()

    asyncio.run(main())
    assert sum("cannot be written" in line for line in caplog.messages) == 1


def test_a_torn_tail_is_cut_off_with_a_line_in_the_log(caplog):
    async def main():
        volume, model = await written(BATCHES)
        image = volume.image()
        last = max(path for path in image if ".seg" in path)
        size = len(image[last])
        image[last] += encode_entry(99, [add(99)])[:-1]
        volume = MemoryVolume(image)
        journal, recovered = await Journal.open(volume, DIRECTORY, SMALL)
        assert plain(recovered) == model.state()
        assert recovered.torn == (last, size, len(image[last]) - size)
        assert f"{last} at offset {size}" in caplog.text
        journal.append([add(100)])
        await journal.close()
        assert len(volume.image()[last]) == size
        _, recovered = await Journal.open(volume, DIRECTORY, SMALL)
        assert recovered.torn is None
        assert [record.id for record in recovered.records][-1] == 100

    asyncio.run(main())


def test_a_later_valid_entry_of_the_same_batch_proves_nothing_but_a_mark_does():
    """A disk may keep the second sector of an unsynced write and lose the first.

    Only a mark says that both had been there.
    """

    async def main():
        volume, model = await written(BATCHES)
        image = volume.image()
        last = max(path for path in image if ".seg" in path)
        first = int(last[-20:-4])
        size = len(image[last])
        sequence = len(model.entries)
        torn = b"\0" * len(encode_entry(sequence + 1, [add(70)])) + encode_entry(sequence + 2, [add(71)])
        assert plain(await opened({**image, last: image[last] + torn})) == model.state()
        marked = image[last] + torn + encode_mark(size + len(torn), first)
        refused = await opened({**image, last: marked})
        assert isinstance(refused, JournalDamagedError)
        assert (refused.path, refused.offset) == (last, size)
        assert "had been synced" in refused.reason
        # A message may look like a mark; it does not lie where the mark says.
        fake = image[last] + torn + b"??" + encode_mark(size + len(torn), first)
        assert plain(await opened({**image, last: fake})) == model.state()

    asyncio.run(main())


def test_after_a_clean_stop_no_flipped_byte_is_taken_for_a_tear():
    async def main():
        volume, _ = await written(BATCHES, close=True)
        image = volume.image()
        last = max(path for path in image if ".seg" in path)
        for offset in range(len(image[last]) - MARK_SIZE):
            data = bytearray(image[last])
            data[offset] ^= 0x10
            assert isinstance(await opened({**image, last: bytes(data)}), JournalDamagedError)

    asyncio.run(main())


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_segment_is_named(which):
    async def main():
        volume, _ = await written(BATCHES)
        image = volume.image()
        gone = sorted(path for path in image if ".seg" in path)[which]
        del image[gone]
        refused = await opened(image)
        assert isinstance(refused, JournalDamagedError)
        assert "missing" in str(refused)

    asyncio.run(main())


def test_segments_without_their_manifest_are_refused():
    async def main():
        volume, _ = await written(BATCHES)
        image = volume.image()
        del image[f"{DIRECTORY}/journal.manifest"]
        assert "without a manifest" in str(await opened(image))

    asyncio.run(main())


def test_a_segment_under_another_ones_name_is_refused():
    async def main():
        volume, _ = await written(BATCHES)
        image = volume.image()
        first, second = sorted(path for path in image if ".seg" in path)[:2]
        image[second] = image[first]
        refused = await opened(image)
        assert refused.path == second
        assert refused.offset == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (encode_entry(50, [add(70)]), "entry 50 stands where"),
        (encode_entry(8, [Operation(9, 0, 1, b""), add(71)]), "action 9"),
    ],
)
def test_an_entry_that_was_written_wrong_is_damage_wherever_it_stands(entry, reason):
    async def main():
        volume, _ = await written([[[add(id_)] for id_ in range(1, 8)]])
        image = volume.image()
        last = max(path for path in image if ".seg" in path)
        first = int(last[-20:-4])
        image[last] += entry
        image[last] += encode_mark(len(image[last]), first)
        refused = await opened(image)
        assert isinstance(refused, JournalDamagedError)
        assert reason in str(refused)

    asyncio.run(main())


def test_a_crash_at_any_change_of_the_first_opening_leaves_an_empty_journal():
    async def main():
        whole = MemoryVolume()
        journal, _ = await Journal.open(whole, DIRECTORY)
        await journal.close()
        for count in range(whole.operations):
            volume = MemoryVolume()
            volume.fail_after = count
            try:
                journal, _ = await Journal.open(volume, DIRECTORY)
                await journal.close()
            except OSError:
                pass
            volume.crash()
            journal, recovered = await Journal.open(volume, DIRECTORY)
            assert recovered.records == []
            assert journal.append([add(1)]) == 1
            await journal.close()

    asyncio.run(main())


def test_headers_have_the_size_that_offsets_count_on():
    async def main():
        volume, _ = await written([])
        sizes = [len(data) for path, data in volume.image().items() if ".seg" in path]
        assert sizes == [HEADER_SIZE]

    asyncio.run(main())
