"""The search for the best plan: it estimates all plans of a space, and simulates the best ones.

`find` (find.py) answers a `Question` (question.py): jobs, a space of plans (space.py), objectives and
limits. grid.py writes the space as columns, screen.py estimates whole batches, pruning.py excludes plans
that cannot be the best, top_candidates.py keeps the best, exact.py simulates them, and rank.py orders them
with their uncertainty. `choose` (default_plan.py) picks the plan of a job that has none.

Elsewhere: searches on several processes (workers/), deployments of engines (search/deployments/).
"""
