"""Environment variables that change which programs start, or run code before a program's first line.

Setting such a variable is choosing the program, so no list of programs would help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAMES = frozenset(
    """
    PATH HOME SHELL IFS PATHEXT COMSPEC XDG_CONFIG_HOME XDG_CONFIG_DIRS XDG_DATA_DIRS
    BASH_ENV ENV BASHOPTS SHELLOPTS PROMPT_COMMAND PS1 PS2 PS4 ZDOTDIR FPATH CDPATH GLOBIGNORE INPUTRC
    GCONV_PATH LOCPATH NLSPATH HOSTALIASES RES_OPTIONS GETCONF_DIR MALLOC_TRACE TMPDIR TERMINFO TERMINFO_DIRS TERMCAP
    PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT PYTHONUSERBASE PYTHONEXECUTABLE PYTHONWARNINGS
    PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX PYTHONCASEOK
    NODE_OPTIONS NODE_PATH NODE_REPL_EXTERNAL_MODULE NODE_EXTRA_CA_CERTS
    PERL5OPT PERL5LIB PERLLIB PERL5DB PERL5SHELL PERL_UNICODE
    RUBYOPT RUBYLIB RUBYSHELL RUBYPATH BUNDLE_GEMFILE
    JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH JAVA_HOME
    LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR R_PROFILE R_PROFILE_USER R_ENVIRON R_ENVIRON_USER
    AWKPATH AWKLIBPATH TCLLIBPATH GUILE_LOAD_PATH JULIA_LOAD_PATH JULIA_DEPOT_PATH ERL_FLAGS ERL_AFLAGS ERL_ZFLAGS
    DOTNET_STARTUP_HOOKS COR_PROFILER CORECLR_PROFILER CORECLR_PROFILER_PATH CORECLR_ENABLE_PROFILING
    EDITOR VISUAL PAGER MANPAGER LESSOPEN LESSCLOSE LESS BROWSER SUDO_EDITOR SUDO_ASKPASS SSH_ASKPASS FCEDIT
    SSH_AUTH_SOCK RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH SVN_SSH HG TAR_OPTIONS GZIP XZ_OPT ZIPOPT UNZIP GREP_OPTIONS
    MAKEFLAGS MAKEFILES MFLAGS GNUMAKEFLAGS CC CXX LD AR CMAKE_TOOLCHAIN_FILE CARGO_HOME RUSTC RUSTC_WRAPPER RUSTFLAGS
    GOFLAGS GOROOT OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES SSLKEYLOGFILE WGETRC CURL_HOME NETRC
    HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    DOCKER_HOST DOCKER_CONFIG KUBECONFIG VIRTUAL_ENV CONDA_PREFIX
    WORKSPACE_DIR SKILLS_DIR WORK_DIR OUTPUT_DIR RUN_DIR SKILL_NAME SKILL_DIR
    """.split()
)
_BEGINNINGS = (
    "LD_",
    "DYLD_",
    "GIT_",
    "BASH_FUNC_",
    "NPM_CONFIG_",
    "PIP_",
    "UV_",
    "PROWESS_",
    "GLIBC_",
    "YARN_",
    "BUN_",
    "DENO_",
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = frozenset("WORKSPACE_DIR SKILLS_DIR WORK_DIR OUTPUT_DIR RUN_DIR SKILL_NAME SKILL_DIR".split())


# Variables that only change how a program prints.
_HARMLESS = re.compile(
    "LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI|SOURCE_DATE_EPOCH"
    "|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|PYTHONIOENCODING|PYTHONUTF8"
)
_HARMLESS_VALUE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.,:@+/-]{0,99}|")


def find_unlisted(env: Any) -> str:
    """Returns which variable of a call may make an allowed program start another one; "" when none does."""
    if not isinstance(env, Mapping):
        return _why_unlisted("env")
    for name, value in env.items():
        if not _HARMLESS.fullmatch(str(name)) or not _HARMLESS_VALUE.fullmatch(str(value)):
            return _why_unlisted(str(name))
    return ""


def _why_unlisted(name: str) -> str:
    shown = ascii(name)[:80]
    return (
        f"The call sets {shown}, and a variable can make an allowed program start another one: "
        "only variables such as LANG, TZ and NO_COLOR are known not to."
    )


def changes_startup(name: str) -> bool:
    """True when the variable decides which program starts, or runs code before the program itself."""
    upper = name.upper()
    return upper in _NAMES or upper.startswith(_BEGINNINGS)


def find_refusal(name: str, value: str) -> str | None:
    """Returns why the model may not set this variable; None when it may."""
    if not _PLAIN.fullmatch(name):
        return "it is not a plain name of letters, digits and underscores"
    if "\0" in value:
        return "its value holds a NUL"
    if name.upper() in _OURS:
        return "the runtime sets it for every run"
    if changes_startup(name):
        return "it changes how programs start"
    return None
