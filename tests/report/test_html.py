from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from run_folders import Page

from ddas_gpu.report.html import document, el, join


def test_text_and_attributes_are_escaped_and_markup_is_kept():
    assert el("p", "a < b", el("b", 3), class_="x") == '<p class="x">a &lt; b<b>3</b></p>'
    assert el("i", title="\"&'") == '<i title="&quot;&amp;&#x27;"></i>'


def test_nothing_is_left_out_but_none_and_false():
    assert join([None, False, 0, "", [1, (2, "x")]]) == "012x"
    assert el("td", hidden=True, title=None, lang=False) == "<td hidden></td>"


def test_names_of_attributes():
    assert el("svg", aria_label="x", viewBox="0 0 1 1") == (
        '<svg aria-label="x" viewBox="0 0 1 1"></svg>'
    )


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_no_text_can_leave_its_element(text: str):
    page = Page(document(text, el("p", text, title=text)))
    assert [tag for tag, _ in page.tags if tag in ("p", "title")] == ["title", "p"]
    assert page.all("p") == [{"title": text}]
    # Once in the title, once in the paragraph.
    assert "".join(page.text).count(text) >= 2 or not text


def test_a_document_forbids_the_network():
    page = Page(document("title", el("p", "text")))
    page.assert_self_contained()
    policies = [m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policies[0]["content"]
