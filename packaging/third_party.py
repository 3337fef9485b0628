"""Writes THIRD-PARTY.txt, the licences of everything that a static binary contains: packaging/third_party.py >THIRD-PARTY.txt

That is the crates (by `cargo about`, installed if it is missing), SQLite, Rust's standard library, and the parts of glibc and
libgcc of this Debian system. It takes minutes, because `cargo about` recognises each licence by its text.
"""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
RULE = "=" * 80


def output(*command):
    return subprocess.check_output(command, text=True, cwd=ROOT)


def crates():
    if not shutil.which("cargo-about"):
        subprocess.check_call(["cargo", "install", "--quiet", "--locked", "cargo-about", "--features", "cli"])
    manifest = ROOT / "crates/snowmint-cli/Cargo.toml"
    arguments = ["--locked", "--offline", "--config", HERE / "third-party.toml", "--manifest-path", manifest]
    subprocess.check_call(["cargo", "fetch", "--quiet", "--locked"], cwd=ROOT)
    return output("cargo", "about", "generate", *arguments, HERE / "third-party.hbs").strip()


def standard_library():
    documents = Path(output("rustc", "--print", "sysroot").strip()) / "share/doc/rust"
    page = (documents / "COPYRIGHT-library.html").read_text()
    page = re.sub(r"<(style|head)\b.*?</\1>", "", page, flags=re.S)
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", text).strip()


def section(title, *texts):
    return "\n\n".join([f"{RULE}\n{title}", *texts])


def main():
    common, debian = Path("/usr/share/common-licenses"), Path("/usr/share/doc")
    glibc = debian / "libc6-dev/copyright"
    if not glibc.is_file():
        sys.exit(f"{glibc} is missing: build on Debian or Ubuntu, and install libc6-dev")
    version = output("dpkg-query", "--show", "--showformat", "${Version}", "libc6-dev")
    rust = output("rustc", "--version").strip()
    print("Licences of what the static binary of Snowmint contains. Snowmint itself: LICENSE-MIT or LICENSE-APACHE.\n")
    print(section(
        "SQLite",
        "SQLite is in the public domain. Its authors disclaim copyright to its source code. In place of a legal notice, a blessing:",
        "May you do good and not evil.\nMay you find forgiveness for yourself and forgive others.\n"
        "May you share freely, never taking more than you give.",
    ), "\n")
    print(section(
        f"GNU C Library (glibc) {version}",
        "Linked statically, under the GNU Lesser General Public License 2.1 or later. Its source is the Debian or Ubuntu source "
        "package\nglibc of this version. To use Snowmint with a changed glibc, build Snowmint from its source with that glibc: "
        "packaging/static.sh.",
        glibc.read_text().strip(), (common / "LGPL-2.1").read_text().strip("\n"),
    ), "\n")
    exception = (Path(output("rustc", "--print", "sysroot").strip()) / "share/doc/rust/licenses/GCC-exception-3.1.txt").read_text()
    print(section(
        "libgcc, of the GNU Compiler Collection",
        "Linked statically, under the GNU General Public License 3 or later with the exception below, which places no "
        "condition on\nSnowmint.",
        exception.strip(), (common / "GPL-3").read_text().strip("\n"),
    ), "\n")
    print(section(f"The standard library of {rust}", standard_library()), "\n")
    print(crates())


main()
