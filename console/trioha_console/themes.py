"""Themes of our own: dark, light, and one that the colour-blind read as well as anybody.

Every theme names the same few roles; no screen knows a colour. State is never told by colour
alone: each role goes with a mark and a word.
"""

from __future__ import annotations

from textual.theme import Theme

DEFAULT_THEME = "trioha-dark"

THEMES = (
    Theme(
        name="trioha-dark",
        primary="#7aa2f7",
        secondary="#bb9af7",
        accent="#2ac3de",
        success="#9ece6a",
        warning="#e0af68",
        error="#f7768e",
        foreground="#c8d3f5",
        background="#16161e",
        surface="#1a1b26",
        panel="#24283b",
        variables={"footer-key-foreground": "#7aa2f7", "block-cursor-text-style": "none"},
    ),
    Theme(
        name="trioha-light",
        primary="#2e5aac",
        secondary="#7048a8",
        accent="#00758f",
        success="#387a2d",
        warning="#8a5a00",
        error="#b3204a",
        foreground="#2a2e3d",
        background="#f7f7fa",
        surface="#eeeff4",
        panel="#dfe1ea",
        dark=False,
        variables={"footer-key-foreground": "#2e5aac", "block-cursor-text-style": "none"},
    ),
    # Okabe and Ito's palette: told apart with any of the usual colour deficiencies.
    Theme(
        name="trioha-colour-blind",
        primary="#56b4e9",
        secondary="#cc79a7",
        accent="#f0e442",
        success="#56b4e9",
        warning="#f0e442",
        error="#d55e00",
        foreground="#e6e6e6",
        background="#101014",
        surface="#17171c",
        panel="#26262e",
        variables={"footer-key-foreground": "#56b4e9", "block-cursor-text-style": "none"},
    ),
)
