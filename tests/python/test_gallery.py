"""Tests of docs/gallery.md: every job of the examples is there, with figures that its example states."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GALLERY = ROOT / "docs/gallery.md"
ROW = re.compile(r"^\| \[([a-z_/0-9]+)\]\(\.\./(examples/[a-z_/0-9]+\.textproto)\) \|(.*)\|$", re.M)


def rows():
    """Returns (name, job file, the cells behind it) of each row."""
    return [(found[1], found[2], [each.strip() for each in found[3].split("|")])
            for found in ROW.finditer(GALLERY.read_text(encoding="utf-8"))]


def jobs():
    """Returns the job files under examples, without those that a run has made."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.textproto")
                  if not {"data", "checkpoints"} & set(path.parts) and "model" in path.read_text(encoding="utf-8"))


def test_every_job_of_the_examples_is_in_the_gallery_once():
    assert len(jobs()) > 25
    assert sorted(file for _, file, _ in rows()) == jobs()


def test_a_row_is_named_after_its_file_and_has_every_cell():
    for name, file, cells in rows():
        assert f"examples/{name}.textproto" == file
        assert len(cells) == 4 and all(cells), (name, cells)


def test_figures_are_those_that_the_example_states():
    for name, file, cells in rows():
        directory = (ROOT / file).parent
        texts = [(directory / "README.md").read_text(encoding="utf-8")]
        if directory.name in ("avazu", "movielens"):
            texts.append((ROOT / "examples/layouts/README.md").read_text(encoding="utf-8"))
        stated = [float(each) for each in re.findall(r"(?<![\d.])0\.\d+", " ".join(texts))]
        for figure in re.findall(r"0\.\d+", cells[2]):
            # The example may state more digits.
            digits = len(figure.partition(".")[2])
            assert any(abs(each - float(figure)) <= 0.5 * 10**-digits + 1e-9 for each in stated), (name, figure)


def test_the_models_are_those_of_the_jobs():
    layers = {"DIN": "attention_pool", "SASRec": "self_attention", "DCN-v2": "cross", "DLRM": "dot_interaction",
              "xDeepFM": "cin", "mixture of experts": "mmoe", "convolutions": "conv2d", "DeepFM": "fm_interaction",
              "factorization machine": "fm_interaction"}
    for name, file, cells in rows():
        text = (ROOT / file).read_text(encoding="utf-8")
        for word, layer in layers.items():
            if re.search(rf"\b{word}\b", cells[0]):
                assert re.search(rf"\b{layer} {{", text), (name, word)
