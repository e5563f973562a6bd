"""Known vulnerabilities of what is installed here, by pip-audit: `make verify` runs this.

Without a database that knows the packages there is nothing to find, and a notice says so.
"""

import json
import subprocess
import sys

COMMAND = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--format", "json"]


def verdict(code: int, out: str, err: str) -> tuple[int, str]:
    """Exit code and what to print, from those of pip-audit."""
    try:
        found = json.loads(out)["dependencies"]
    except (ValueError, KeyError):
        said = (err.strip().splitlines() or [f"exit code {code}"])[-1]
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
