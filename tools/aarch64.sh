#!/bin/sh
# Runs a 64-bit Arm Python under emulation: tools/aarch64.sh FOLDER ARGUMENT... It has numpy, numba, pytest and
# hypothesis; what else it is to import is in the folders of $PYTHONPATH.
#
# FOLDER gets the packages of a Debian for arm64, unpacked but not installed, and wheels. If it is not there, it is made,
# which takes a minute, qemu-user and apt-get, but no root, and changes nothing in the lists of this machine's apt.
#
#     QEMU_CPU=cortex-a53   a processor without SDOT; the default is one that has all
#     TFLM_CROSS=PYTHON     compile kernels with that Python of this machine, ten times as fast; see cross_compiler.py
set -e
root=$1
shift
python=python3.11
packages="$python libstdc++6 libgomp1"
wheels='numpy>=2.0 numba>=0.60 flatbuffers>=25.12.19 pytest hypothesis typer rich'

fetch() {
    apt=$root/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    touch "$apt/status"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" > "$apt/sources.list"
    set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false \
        -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Dir::Etc::sourcelist="$apt/sources.list" \
        -o Dir::Etc::sourceparts=/nonexistent -o Dir::State="$apt" -o Dir::State::status="$apt/status" \
        -o Dir::Cache="$apt/cache"
    apt-get "$@" update
    # shellcheck disable=SC2086
    apt-get "$@" --yes --download-only install $packages
    for package in "$apt"/cache/archives/*.deb; do
        dpkg-deb --extract "$package" "$root"
    done
    rm -r "$apt"
    # shellcheck disable=SC2086
    "${PIP:-pip}" install --quiet --disable-pip-version-check --target "$root/usr/local/lib/$python/dist-packages" \
        --python-version "${python#python}" --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux2014_aarch64 --only-binary=:all: $wheels
}

# The Python starts others by the name that it has itself: that of a script, as the kernel can't start it.
write_python() {
    cross=$(cd "$(dirname "$0")" && pwd)/cross_compiler.py
    cat > "$root/usr/bin/python" << END
#!/bin/sh
case "\$TFLM_CROSS \$*" in
    " "*) ;;
    *compiler_main.py*) exec "\$TFLM_CROSS" -I "$cross" aarch64-unknown-linux-gnu aarch64 "\$@" ;;
esac
exec qemu-aarch64 -cpu "\${QEMU_CPU:-max}" -0 "\$0" -L "$root" "$root/usr/bin/$python" "\$@"
END
    chmod +x "$root/usr/bin/python"
}

mkdir -p "$root"
root=$(cd "$root" && pwd)
[ -e "$root/usr/local/lib/$python/dist-packages/numba" ] || fetch
write_python
export PYTHONDONTWRITEBYTECODE=1
exec "$root/usr/bin/python" "$@"
