"""The pytest plugin: fixtures that break a cluster, judge a history, and fail with the story.

Why a package beside the harness: pytest imports the plugin of every installed package into every
run. This one loads nothing but itself until a fixture is used, and its name can hide no package of
a user, as "harness" could.
"""
