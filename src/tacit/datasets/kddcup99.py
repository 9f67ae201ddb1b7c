"""KDD Cup 1999: is a network connection an attack? Trains on the ten-per-cent part, tests on the corrected part.

Many rows occur several times (145,586 of the 494,021 are distinct), and each counts as one example.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.datasets import DataSet, Remote, Source, TrainingDefaults
from tacit.datasets._columns import Category, CodeBook, Number, count_numbers, encode, to_columns
from tacit.datasets._data import TABLE_SCALING, Data, Examples, Form, TableForm
from tacit.datasets._files import find_parts, parse_rows

_ARCHIVE = "kdd+cup+1999+data.zip"
_FILES = ("kddcup.data_10_percent", "corrected")
_PUBLISHED_SIZE = 494_021
_SHARE, _FLAG = Number(0, 1), Number(0, 1)
_FEW, _SOME = Number(0, 10, logarithmic=True), Number(0, 1_000, logarithmic=True)
_BYTES = Number(0, 1e9, logarithmic=True)
_RATES = "serror_rate srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate"
_HOST_RATES = (
    "dst_host_same_srv_rate dst_host_diff_srv_rate dst_host_same_src_port_rate dst_host_srv_diff_host_rate "
    "dst_host_serror_rate dst_host_srv_serror_rate dst_host_rerror_rate dst_host_srv_rerror_rate"
)
_BOOK: CodeBook = {
    "duration": Number(0, 60_000, logarithmic=True),
    "protocol_type": Category.of("icmp tcp udp"),
    "service": Category.of(
        "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i efs exec "
        "finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 icmp imap4 iso_tsap klogin "
        "kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp ntp_u other pm_dump "
        "pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh sunrpc supdup systat telnet tftp_u "
        "tim_i time urh_i urp_i uucp uucp_path vmnet whois"
    ),
    "flag": Category.of("OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH"),
    **dict.fromkeys(("src_bytes", "dst_bytes"), _BYTES),
    "land": _FLAG,
    **dict.fromkeys(("wrong_fragment", "urgent"), _FEW),
    "hot": _SOME,
    "num_failed_logins": _FEW,
    "logged_in": _FLAG,
    "num_compromised": _SOME,
    "root_shell": _FLAG,
    "su_attempted": _FEW,
    **dict.fromkeys(("num_root", "num_file_creations"), _SOME),
    **dict.fromkeys(("num_shells", "num_access_files", "num_outbound_cmds"), _FEW),
    **dict.fromkeys(("is_host_login", "is_guest_login"), _FLAG),
    **dict.fromkeys(("count", "srv_count"), Number(0, 511)),
    **dict.fromkeys(_RATES.split(), _SHARE),
    **dict.fromkeys(("dst_host_count", "dst_host_srv_count"), Number(0, 255)),
    **dict.fromkeys(_HOST_RATES.split(), _SHARE),
}


def _read(where: Path) -> Data | None:
    """Both parts; None if one of them is not there."""
    parts = find_parts(where, _FILES, _ARCHIVE, "rows of kddcup99", _parse)
    if parts is None:
        return None
    train, test = parts
    return Data(
        "kddcup99",
        train,
        test,
        classes=2,
        population=_PUBLISHED_SIZE,
        scaling=TABLE_SCALING,
        example="connection",
        numbers=count_numbers(_BOOK),
        form=Form(TableForm(_BOOK), "label", ("normal", "attack")),
    )


def _parse(text: bytes) -> Examples:
    # Two rows of three are repetitions: each distinct row is parsed once.
    lines = text.split()
    places = {line: place for place, line in enumerate(dict.fromkeys(lines))}
    table = to_columns(parse_rows(b"\n".join(places)), [*_BOOK, "label"])
    inputs, labels = encode(table, _BOOK), (table["label"] != "normal.").astype(np.int64)
    row = np.fromiter((places[line] for line in lines), dtype=np.int64, count=len(lines))
    return inputs[row], labels[row]


DATASET = DataSet(
    "kddcup99",
    Source(
        "https://kdd.ics.uci.edu/databases/kddcup99/kddcup99.html",
        (
            Remote(
                "https://ndownloader.figshare.com/files/5976042",
                "kddcup.data_10_percent.gz",
                "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
            ),
            # The checksum of a copy whose rows agree with the published count.
            Remote(
                "https://kdd.ics.uci.edu/databases/kddcup99/corrected.gz",
                "corrected.gz",
                "547dfb9c0f0dc1d9944219ec79e851191faebaeb8acbfa1cd171c418397052a4",
                inside="",
            ),
        ),
    ),
    read=_read,
    files=f"kddcup.data_10_percent[.gz] with corrected[.gz], or for {_ARCHIVE}",
    folders=(_ARCHIVE.removesuffix(".zip"),),
    defaults=TrainingDefaults("linear", lot_size=2_048, epochs=5, learning_rate=1.0, adam_rate=0.02),
)
