#!/bin/sh
# Runs a Python of 32 bits, as 32-bit Raspberry Pi OS has it: tools/i386.sh FOLDER ARGUMENT... It has numpy, pytest and
# hypothesis; what else it is to import is in the folders of $PYTHONPATH.
#
# FOLDER is a Debian for i386, which is made if it is not there. That takes some minutes, the program debootstrap, and
# root, by sudo where need be. The Python in it runs as it is on a 64-bit kernel, as any user, without a chroot.
set -e
root=$1
shift
if [ ! -e "$root/usr/bin/python3" ]; then
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    packages=python3-numpy,python3-pytest,python3-hypothesis
    $as_root debootstrap --arch=i386 --variant=minbase --include=$packages trixie "$root"
fi
root=$(cd "$root" && pwd)
libraries=$root/usr/lib/i386-linux-gnu
export PYTHONHOME="$root/usr" PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$root/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1
exec "$root/lib/ld-linux.so.2" --library-path "$libraries:$libraries/blas:$libraries/lapack" "$root/usr/bin/python3" "$@"
