"""``brokerctl journal check`` and ``salvage``.

What can be read of a damaged journal, and what is lost.
"""

import asyncio
import json

import pytest
from journals import DIRECTORY, SMALL, Model, add, delete, update

from broker import ctl
from broker.core.message import CLEAN, DECIDED, PREPARED
from broker.core.two_phase import (
    Decision,
    PreparedMessage,
    Settlement,
    TransactionId,
    encode_decided,
    encode_prepared,
)
from broker.storage.directory import DirectoryVolume
from broker.storage.entry import ADD, Operation
from broker.storage.inspection import inspect, salvage
from broker.storage.journal import Journal
from broker.storage.memory import MemoryVolume


async def written(count=40, volume=None, directory=DIRECTORY):
    """A journal of some segments, closed: (volume, its content as a model)."""
    volume = volume or MemoryVolume()
    journal, _ = await Journal.open(volume, directory, SMALL)
    model = Model()
    for number in range(1, count + 1):
        operations = [add(number, b"%03d" % number * 20)]
        if number % 5 == 0:
            operations = [update(number - 1), delete(number - 2)]
        journal.append(operations)
        model.append(*operations)
        await journal.flush()
    await journal.close()
    return volume, model


def damaged(image, place, size=16, segment=0):
    """The image with zeros at a place of one of its segments."""
    path = sorted(name for name in image if name.endswith(".seg"))[segment]
    data = bytearray(image[path])
    place %= len(data)
    data[place : place + size] = bytes(len(data[place : place + size]))
    return {**image, path: bytes(data)}


def test_a_sound_journal_is_read_as_a_start_reads_it():
    async def main():
        volume, model = await written()
        before = volume.image()
        found = await inspect(volume, DIRECTORY)
        assert volume.image() == before
        assert not found.damage
        assert found.torn is None
        assert found.lost == []
        assert found.entries == found.last == found.synced.sequence == 40
        assert sorted(found.records) == sorted(record[0] for record in model.state())

    asyncio.run(main())


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_damage_in_the_middle_costs_the_entries_there_and_no_others(segment):
    async def main():
        volume, _ = await written()
        found = await inspect(MemoryVolume(damaged(volume.image(), 260, segment=segment)), DIRECTORY)
        assert len(found.damage) == 1
        assert found.damage[0].offset <= 260 < found.damage[0].offset + found.damage[0].size
        lost = sum(last - first + 1 for first, last in found.lost)
        assert 1 <= lost <= 2
        assert found.entries == 40 - lost
        assert found.last == 40

    asyncio.run(main())


def test_a_synced_end_that_is_gone_is_damage_and_not_a_torn_tail():
    async def main():
        volume, _ = await written()
        image = damaged(volume.image(), -300, 300, segment=-1)
        found = await inspect(MemoryVolume(image), DIRECTORY)
        assert found.torn is None
        assert "had been synced" in found.damage[0].reason
        assert found.lost == [(found.last + 1, 40)]
        del image[f"{DIRECTORY}/journal.synced"]
        assert (await inspect(MemoryVolume(image), DIRECTORY)).torn is not None

    asyncio.run(main())


def test_a_lost_segment_and_a_lost_header_are_told():
    async def main():
        volume, _ = await written()
        image = volume.image()
        names = sorted(name for name in image if name.endswith(".seg"))
        without = await inspect(
            MemoryVolume({name: data for name, data in image.items() if name != names[1]}), DIRECTORY
        )
        assert "should stand before it" in without.damage[0].reason
        headless = await inspect(MemoryVolume(damaged(image, 0, 64, segment=1)), DIRECTORY)
        assert "header" in headless.damage[0].reason
        assert headless.entries == 40

    asyncio.run(main())


def test_what_is_salvaged_is_a_journal_with_the_records_that_can_be_read():
    async def main():
        volume, _ = await written()
        broken = MemoryVolume(damaged(volume.image(), 300))
        output = MemoryVolume()
        found = await salvage(broken, DIRECTORY, output, "saved", without=(CLEAN,))
        journal, recovered = await Journal.open(output, "saved", SMALL)
        assert [record.id for record in recovered.records] == list(found.records)
        assert recovered.records == list(found.records.values())
        assert journal.next_id() > max(found.records)
        await journal.close()
        with pytest.raises(FileExistsError):
            await salvage(broken, DIRECTORY, output, "saved")

    asyncio.run(main())


def test_the_command_names_file_and_offset_and_salvages(tmp_path, capsys):
    async def make():
        volume = DirectoryVolume(tmp_path)
        await written(volume=volume, directory="journal")
        await volume.close()

    asyncio.run(make())
    place = str(tmp_path / "journal")
    assert ctl.main(["journal", "check", place]) == 0
    assert "synced up to entry 40" in capsys.readouterr().out
    segment = max((tmp_path / "journal").glob("*.seg"))
    data = segment.read_bytes()
    segment.write_bytes(data[:-200] + bytes(200))
    assert ctl.main(["journal", "check", place]) == 1
    out = capsys.readouterr().out
    assert f"DAMAGED: journal/{segment.name} at offset " in out
    assert "LOST: entries" in out
    assert ctl.main(["--json", "journal", "salvage", place, str(tmp_path / "saved")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lost"]
    assert ctl.main(["journal", "check", str(tmp_path / "saved")]) == 0
    assert ctl.main(["journal", "check", str(tmp_path / "nowhere")]) == 254


def test_the_command_shows_transactions_that_have_not_ended(tmp_path, capsys):
    async def make():
        volume = DirectoryVolume(tmp_path)
        journal, _ = await Journal.open(volume, "journal", SMALL)
        messages = [PreparedMessage(7, 0, Settlement.ACKNOWLEDGE)]
        id_ = TransactionId("n2", 5)
        journal.append([Operation(ADD, PREPARED, journal.next_id(), encode_prepared(id_, 0, messages))])
        decision = Decision(journal.next_id(), TransactionId("n1", 6), 0, ("n2",))
        journal.append([Operation(ADD, DECIDED, decision.record_id, encode_decided(decision))])
        await journal.close()
        await volume.close()

    asyncio.run(make())
    assert ctl.main(["journal", "check", str(tmp_path / "journal")]) == 0
    out = capsys.readouterr().out
    assert "transaction n2-5 is prepared, with 1 messages" in out
    assert "1 transactions have committed" in out
    assert ctl.main(["--json", "journal", "check", str(tmp_path / "journal")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prepared"] == [{"id": "n2-5", "coordinator": "n2", "messages": 1}]
    assert found["decided"] == 1
