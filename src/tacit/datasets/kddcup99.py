"""KDD Cup 1999: is a network connection normal, or an attack? The ten-per-cent part to train on, the corrected to test.

Many rows occur several times (145,586 of the 494,021 are different), and each counts as one example.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.datasets.codebook import Category, CodeBook, Number, columns_of, encode, number_count
from tacit.datasets.data import Data, Examples
from tacit.datasets.files import contents, reading, rows_of

_ARCHIVE = "kdd+cup+1999+data.zip"
FILES = f"kddcup.data_10_percent[.gz] with corrected[.gz], or for {_ARCHIVE}"
FOLDERS = (_ARCHIVE.removesuffix(".zip"),)
_NAMES = ("kddcup.data_10_percent", "corrected")
_PUBLISHED_SIZE = 494_021


def _category(values: str) -> Category:
    return Category(tuple(values.split()))


_SHARE, _FLAG = Number(0, 1), Number(0, 1)
_FEW, _SOME = Number(0, 10, logarithmic=True), Number(0, 1_000, logarithmic=True)
_BYTES = Number(0, 1e9, logarithmic=True)
_BOOK: CodeBook = {
    "duration": Number(0, 60_000, logarithmic=True),
    "protocol_type": _category("icmp tcp udp"),
    "service": _category(
        "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i efs exec "
        "finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 icmp imap4 iso_tsap klogin "
        "kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp ntp_u other pm_dump "
        "pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh sunrpc supdup systat telnet tftp_u "
        "tim_i time urh_i urp_i uucp uucp_path vmnet whois"
    ),
    "flag": _category("OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH"),
    "src_bytes": _BYTES,
    "dst_bytes": _BYTES,
    "land": _FLAG,
    "wrong_fragment": _FEW,
    "urgent": _FEW,
    "hot": _SOME,
    "num_failed_logins": _FEW,
    "logged_in": _FLAG,
    "num_compromised": _SOME,
    "root_shell": _FLAG,
    "su_attempted": _FEW,
    "num_root": _SOME,
    "num_file_creations": _SOME,
    "num_shells": _FEW,
    "num_access_files": _FEW,
    "num_outbound_cmds": _FEW,
    "is_host_login": _FLAG,
    "is_guest_login": _FLAG,
    "count": Number(0, 511),
    "srv_count": Number(0, 511),
    "serror_rate": _SHARE,
    "srv_serror_rate": _SHARE,
    "rerror_rate": _SHARE,
    "srv_rerror_rate": _SHARE,
    "same_srv_rate": _SHARE,
    "diff_srv_rate": _SHARE,
    "srv_diff_host_rate": _SHARE,
    "dst_host_count": Number(0, 255),
    "dst_host_srv_count": Number(0, 255),
    "dst_host_same_srv_rate": _SHARE,
    "dst_host_diff_srv_rate": _SHARE,
    "dst_host_same_src_port_rate": _SHARE,
    "dst_host_srv_diff_host_rate": _SHARE,
    "dst_host_serror_rate": _SHARE,
    "dst_host_srv_serror_rate": _SHARE,
    "dst_host_rerror_rate": _SHARE,
    "dst_host_srv_rerror_rate": _SHARE,
}


def read_kddcup99(where: Path) -> Data | None:
    """Both parts; None if one of them is not there."""
    found = contents(where, _NAMES, [_ARCHIVE])
    if found is None:
        return None
    parts = []
    for name in _NAMES:
        with reading(found[name].path, "rows of kddcup99"):
            parts.append(_examples(found[name].content))
    train, test = parts
    return Data(
        "kddcup99",
        train,
        test,
        classes=2,
        population=_PUBLISHED_SIZE,
        scaling="numbers go from declared ranges to [-1, 1], categories to 0 or 1",
        example="connection",
        numbers=number_count(_BOOK),
    )


def _examples(text: bytes) -> Examples:
    # Two rows of three occur before: each is taken apart once.
    lines = text.split()
    places = {line: place for place, line in enumerate(dict.fromkeys(lines))}
    table = columns_of(rows_of(b"\n".join(places)), [*_BOOK, "label"])
    inputs, labels = encode(table, _BOOK), (table["label"] != "normal.").astype(np.int64)
    row = np.fromiter((places[line] for line in lines), dtype=np.int64, count=len(lines))
    return inputs[row], labels[row]
