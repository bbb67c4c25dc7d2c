"""Application services that the command line, evals and a service share.

- approvals: answers waiting questions; lists, grants and revokes standing approvals
- argument_words: parses words that a person wrote as the arguments of a tool
- artifacts: lists, finds and removes saved files of all sessions
- capabilities: what a skill asks for, ships and needs, for a person
- cleanup: removes old runs, sessions, and files that sessions left on disk
- container_image: builds the image for containers
- doctor: examines roots, skills, settings, policy and the installation
- doctor_workspace: tries every executor, and reports what isolation holds
- documents: JSON documents of contract.md that several commands share
- files: files that a request names, and files copied from a run
- find_run: finds a run in the log or as a copy, by its id, folder or path
- inspect_skill: describes one skill, explains why a model sees it, counts tokens
- policy_check: explains the policy decision about a call without making it
- preapproved: tools that a person approves beforehand (`--yes`)
- replay: reads the inputs of a recorded run, so that it can be repeated
- replay_run: repeats a recorded run without a model, and finds the first difference
- requests: the skills that a person uses in a session, and the limit to raise
- runs: lists the runs of the log, and those that exist only as a copy
- sarif: reports about skills in SARIF
- scaffold: writes new skills and new projects from templates
- sessions: lists the sessions of the log, and finds one of them
- settings_in_force: value and origin of every setting
- trust: finds the content that trust would cover, gives trust and takes it back
- verify_run: checks the records of one run or of all, and reads a run together with its faults
"""
