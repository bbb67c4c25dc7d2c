"""Check a folder of skills in CI: one line for each skill and each finding, exit code 1 if a skill would not do.

Run it from the top of the repository: python examples/validate_in_ci.py [FOLDER] [PROFILE]

Prints, for the skills beside this file:

    ok    api-style-guide
    ok    invoice-check
    ok    meeting-notes
    3 skills, 0 failed
"""

from __future__ import annotations

import argparse
import sys

import prowess


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a folder of skills.")
    parser.add_argument("folder", nargs="?", default="examples/skills")
    parser.add_argument("profile", nargs="?", default="default", choices=["default", "spec", "portable", "security"])
    options = parser.parse_args()
    reports = list(prowess.check([options.folder], profile=options.profile))
    failed = [report for report in reports if not report.valid]
    for report in reports:
        print("FAIL " if report in failed else "ok   ", report.name)
        for finding in report.findings:
            if finding.severity != "info":
                print(
                    f"      {finding.path}:{finding.line or 1}: {finding.message} {finding.hint or ''} [{finding.code}]"
                )
    print(f"{len(reports)} skills, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
