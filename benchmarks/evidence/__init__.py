"""What the search is worth: searched policies beside the peers, in recorded, seeded runs.

protocol   sizes, seeds, domains and peers, fixed before the first run
images     the data sets, and the target domains made of them
jobs       the order of the runs
cells      trainings and searches through the public commands; one line each in results.jsonl
numbers    means, standard errors and paired differences of the recorded lines
tables     the page's tables, in Markdown
pictures   its SVGs
page       docs/evidence.md and the table of the README, from the recorded lines
"""
