from __future__ import annotations

from xml.etree import ElementTree

from bench.flame_graph import draw, name_of, stacks, tree_of

SCRIPT = """
            7f01 epoll_wait
            7f02 select_epoll_poll
            7f03 CPyDef_ready_reads___ReadyReads___get_events
            7f04 CPyPy_ready_reads___ReadyReads___get_events
            7f05 _PyObject_Vectorcall
            7f06 _PyEval_EvalFrameDefault
            7f07 _PyFunction_Vectorcall
            7f08 _PyEval_EvalFrameDefault

            7f09 crc32_z
            7f06 _PyEval_EvalFrameDefault
"""


def test_stacks_begin_with_the_outermost_function_and_leave_out_what_only_calls() -> None:
    assert list(stacks(SCRIPT.splitlines())) == [
        ("interpreted", "ready_reads.ReadyReads.get_events", "select_epoll_poll", "epoll_wait"),
        ("interpreted", "crc32_z"),
    ]


def test_names_of_private_functions_lose_the_marks_of_the_compiler() -> None:
    assert name_of("CPyDef_writer___Writer____append+0x1f") == "writer.Writer.append"


def test_copies_of_a_function_have_its_name() -> None:
    assert name_of("do_softirq.part.0") == "do_softirq"


def test_a_box_is_as_wide_as_its_share_of_the_samples() -> None:
    picture = ElementTree.fromstring(draw(tree_of(stacks(SCRIPT.splitlines())), "a < b"))
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "interpreted: 100.0%" in titles
    assert "crc32_z: 50.0%" in titles


def test_no_sample_is_an_empty_picture() -> None:
    ElementTree.fromstring(draw(tree_of([]), "nothing"))
