"""Runs a notebook with nbclient: what a check and a picture show there, with the timeline as a page inside a frame."""

import nbformat
from nbclient import NotebookClient

CELLS = [
    'import pipec\nfound = pipec.check("std:v_half", devices=4, microbatches=8)\nfound',
    'pipec.plot("std:1f1b", devices=2, microbatches=2)',
    'pipec.search("std:1f1b", devices=2, microbatches=3, rounds=1)',
]

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
for cell in notebook.cells:
    (output,) = cell.outputs
    shown = output["data"]["text/html"]
    assert shown.startswith("<iframe srcdoc=") and "&lt;script" in shown and "Timeline" in shown, shown[:200]
print(f"notebook: {len(CELLS)} cells show a timeline")
