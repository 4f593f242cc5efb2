"""A file is whole, or as it was: whatever breaks off while it is written."""

import pytest

from flopcast.files.atomic_write import write_whole

OLD, NEW = "old\n", "größer\n"


def test_a_text_is_written_in_place_of_what_stood_there(tmp_path):
    path = tmp_path / "runs.json"
    path.write_text(OLD, encoding="utf-8")

    write_whole(path, NEW)

    assert path.read_text(encoding="utf-8") == NEW
    assert [each.name for each in tmp_path.iterdir()] == ["runs.json"]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_what_stood_there_stays_when_writing_breaks_off(tmp_path, monkeypatch, step):
    path = tmp_path / "runs.json"
    path.write_text(OLD, encoding="utf-8")

    def stop(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(step, stop)
        with pytest.raises(KeyboardInterrupt):
            write_whole(path, NEW)

    assert path.read_text(encoding="utf-8") == OLD


def test_names_that_differ_in_their_last_part_only_do_not_disturb_each_other(tmp_path, monkeypatch):
    def stop(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", stop)
        for name in ("a.json", "a.txt"):
            with pytest.raises(KeyboardInterrupt):
                write_whole(tmp_path / name, name)

    assert sorted(each.read_text() for each in tmp_path.iterdir()) == ["a.json", "a.txt"]


def test_a_full_disk_leaves_nothing_behind_and_a_link_stays_a_link(tmp_path, monkeypatch):
    link, path = tmp_path / "link", tmp_path / "file"
    path.write_text(OLD, encoding="utf-8")
    link.symlink_to(path)

    def full(number):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_whole(link, NEW)
    before = path.read_text(encoding="utf-8")
    write_whole(link, NEW.encode())

    assert (before, path.read_text(encoding="utf-8")) == (OLD, NEW)
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]
