"""Builds the packages that a service serves: sdk/packages, from sdk/typescript, sdk/python, and sdk/x402.

    python3 sdk/build.py              build the packages of the sources
    python3 sdk/build.py --check      fail if the packages differ from the sources
    python3 sdk/build.py --release    build them, and mark them as released: they are never replaced or removed

It needs Python 3.11 or later, node, and npm, which installs the tools that sdk/typescript/package-lock.json pins. Archives have sorted
names and no times, so that the same contents have the same address. --tools DIR names a directory in which the tools are installed.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE / "packages"
INDEX = PACKAGES / "index.json"
#: Bytes of all packages together.
LIMIT = 2_000_000
#: The time of files in archives, as npm writes it: some unpackers reject 1970.
TIME = 499_162_500
Files = dict[str, bytes]


def below(folder: pathlib.Path) -> Files:
    """Returns the files of a folder by their path in it."""
    files = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(files)}


def install(source: pathlib.Path) -> pathlib.Path:
    """Installs the pinned tools once, in a folder named after their versions, and returns it."""
    names = ["package.json", "package-lock.json", ".npmrc"]
    pins = hashlib.sha256(b"".join((source / n).read_bytes() for n in names)).hexdigest()
    tools = pathlib.Path.home() / ".cache" / "toll-sdk" / pins[:16]
    if not tools.exists():
        tools.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tools.parent) as work:
            folder = pathlib.Path(work, "tools")
            folder.mkdir()
            for name in names:
                shutil.copy(source / name, folder)
            npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
            subprocess.run(npm, cwd=folder, check=True)
            folder.rename(tools)
    return tools


def typescript(tools: pathlib.Path | None) -> tuple[str, str, Files]:
    """Builds the package for npm and returns its name, its version, and its files."""
    source = HERE / "typescript"
    tools = tools or install(source)
    with tempfile.TemporaryDirectory(dir=tools) as work:  # below the tools, so that imports find them
        folder = pathlib.Path(work)
        shutil.copytree(source / "src", folder / "src")
        for name in ["package.json", "tsconfig.json", "tsdown.config.ts", "README.md", "LICENSE"]:
            shutil.copy(source / name, folder)
        program = tools / "node_modules" / "tsdown" / "dist" / "run.mjs"
        done = subprocess.run(["node", program], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return published(folder)


def published(folder: pathlib.Path) -> tuple[str, str, Files]:
    """Returns the name and the version of the package for npm in a folder, and the files that npm publishes."""
    manifest = json.loads((folder / "package.json").read_text("utf-8"))
    files = {"package/package.json": (folder / "package.json").read_bytes()}
    for name in manifest["files"]:
        at = folder / name
        found = below(at) if at.is_dir() else {"": at.read_bytes()}
        files.update((f"package/{name}/{path}".rstrip("/"), text) for path, text in found.items())
    return manifest["name"], manifest["version"], files


def python() -> tuple[str, str, Files]:
    """Returns the name, the version, and the files of the wheel, but for the list of its files."""
    source = HERE / "python"
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    if project["dependencies"]:
        sys.exit("sdk/build.py does not support dependencies: add them to the metadata of the wheel as Requires-Dist")
    head = [
        ("Metadata-Version", "2.4"), ("Name", name), ("Version", version), ("Summary", project["description"]),
        ("License-Expression", project["license"]), ("License-File", "LICENSE"), ("Keywords", ",".join(sorted(project["keywords"]))),
        *(("Classifier", c) for c in project["classifiers"]),
        ("Requires-Python", project["requires-python"]), ("Description-Content-Type", "text/markdown"),
    ]
    metadata = "".join(f"{field}: {value}\n" for field, value in head) + "\n" + (source / project["readme"]).read_text("utf-8")
    info = f"{name}-{version}.dist-info"
    files = {f"{name}/{path}": text for path, text in below(source / "src" / name).items()}
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: toll\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/licenses/LICENSE"] = (source / "LICENSE").read_bytes()
    record = [f"{path},sha256={digest('sha256', text, urlsafe=True)},{len(text)}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    return name, version, files


def digest(algorithm: str, text: bytes, urlsafe: bool = False) -> str:
    """Returns a hash in base64: in URL-safe letters without padding for RECORD, as npm writes it otherwise."""
    sum = hashlib.new(algorithm, text).digest()
    return base64.urlsafe_b64encode(sum).decode().rstrip("=") if urlsafe else base64.b64encode(sum).decode()


def tgz(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(text), TIME, 0o644
            archive.addfile(entry, io.BytesIO(text))
    return gzip.compress(out.getvalue(), 9, mtime=0)


def wheel(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in files.items():  # RECORD comes last
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o100644 << 16, 3
            archive.writestr(entry, text, compresslevel=9)
    return out.getvalue()


def contents(archive: bytes) -> Files:
    """Returns the files of an archive of either kind."""
    if archive[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(archive)) as z:
            return {name: z.read(name) for name in z.namelist()}
    with tarfile.open(fileobj=io.BytesIO(archive)) as t:
        return {m.name: t.extractfile(m).read() for m in t.getmembers()}  # type: ignore[union-attr]  # all are files


def entry(language: str, name: str, version: str, archive: bytes) -> dict[str, object]:
    """Describes a package. Its path has the beginning of its hash; the name of a wheel must stay as pip reads it."""
    sha256 = hashlib.sha256(archive).hexdigest()
    short = sha256[:8]
    path = f"{name.split('/')[-1]}-{version}-{short}.tgz" if language == "typescript" else f"{short}/{name}-{version}-py3-none-any.whl"
    return {
        "language": language, "name": name, "version": version, "path": path, "size": len(archive), "sha256": sha256,
        "integrity": "sha512-" + digest("sha512", archive), "released": False,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true")
    options.add_argument("--release", action="store_true")
    options.add_argument("--tools", type=pathlib.Path)
    o = options.parse_args()
    index = json.loads(INDEX.read_text("utf-8")) if INDEX.exists() else []
    kept = [e for e in index if e["released"]]
    archives: dict[str, bytes] = {}
    packages = [
        ("python", wheel, python()), ("typescript", tgz, typescript(o.tools)), ("typescript", tgz, published(HERE / "x402")),
    ]
    for language, pack, (name, version, files) in packages:
        of_name = [e for e in index if e["name"] == name]
        now = of_name[-1] if of_name else None
        before = contents((PACKAGES / now["path"]).read_bytes()) if now else {}
        differ = sorted(n for n in before.keys() | files.keys() if before.get(n) != files.get(n))
        same = not differ and now["version"] == version if now else False
        if not same and any(e["version"] == version for e in kept if e["name"] == name):
            sys.exit(f"{name} {version} is released and its sources have changed ({', '.join(differ)}): raise the version of the package")
        if o.check and not same:
            sys.exit(f"{name} differs from its sources ({', '.join(differ)}): run make sdk")
        if same:  # another compressor does not change an address
            one = dict(now)
        else:
            archive = pack(files)
            one = entry(language, name, version, archive)
            archives[one["path"]] = archive
        one["released"] = one["released"] or o.release
        kept = [e for e in kept if e["path"] != one["path"]] + [one]
    size = sum(e["size"] for e in kept)
    if size > LIMIT:
        sys.exit(f"the packages have {size} bytes together, and {LIMIT} are allowed")
    if o.check:
        return
    for path, archive in archives.items():
        (PACKAGES / path).parent.mkdir(parents=True, exist_ok=True)
        (PACKAGES / path).write_bytes(archive)
    for e in index:
        if e["path"] not in {k["path"] for k in kept}:
            (PACKAGES / e["path"]).unlink()
            if e["language"] == "python":
                (PACKAGES / e["path"]).parent.rmdir()
    INDEX.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")
    for e in kept:
        print(e["path"], e["size"], "released" if e["released"] else "")


if __name__ == "__main__":
    main()
