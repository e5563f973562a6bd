"""Known vulnerabilities of what is installed here, by pip-audit: `make verify` runs this.

Without a database that can be reached and knows the packages there is nothing to find, and a notice says so; whatever
else keeps pip-audit from its work is an error.
"""

import json
import re
import subprocess
import sys

UNREACHABLE = re.compile(r"connection|timed? ?out|resolve|unreachable|proxy|ssl|service unavailable", re.IGNORECASE)
COMMAND = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--format", "json"]


def verdict(code: int, out: str, err: str) -> tuple[int, str]:
    """Exit code and what to print, from those of pip-audit."""
    try:
        found = json.loads(out)["dependencies"]
    except (ValueError, KeyError):
        said = (err.strip().splitlines() or [f"exit code {code}"])[-1]
        if not UNREACHABLE.search(err):
            return 1, f"error: pip-audit failed ({said[:200]})"
        return 0, f"notice: pip-audit is skipped, its database can't be reached ({said[:200]})"
    known = [one for one in found if "vulns" in one]
    if not known:
        return 0, f"notice: pip-audit is skipped, its database knows none of {len(found)} packages"
    faults = [f"{one['name']} {one['version']}: {fault['id']}" for one in known for fault in one["vulns"]]
    return int(bool(faults)), "\n".join([*faults, f"{len(known)} of {len(found)} packages audited"])


if __name__ == "__main__":
    done = subprocess.run(COMMAND, capture_output=True, text=True)
    code, text = verdict(done.returncode, done.stdout, done.stderr)
    print(text)
    sys.exit(code)
