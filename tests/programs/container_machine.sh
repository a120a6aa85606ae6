#!/bin/sh
# As root on a machine of a lab: prepares what containers of the user daemon need, which begin as
# containers of any ordinary user do. Arguments: the directory that the containers see as /run/files, the
# owner of their image, a directory to see as /run/files/ray or nothing.
set -eu
umask 022
files=$1 owner=$2 ray=$3

# slirp4netns opens it outside the containers, as each user may on a usual machine.
mkdir /run/devices /run/files
mount -t tmpfs tmpfs /run/devices
mknod -m 666 /run/devices/tun c 10 200
mount --bind /run/devices/tun /dev/net/tun
# Where version 1 of control groups is there as well, crun starts no container.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$files" /run/files
[ -z "$ray" ] || mount --bind "$ray" /run/files/ray
install -d -o 1 -g 1 -m 700 /run/ada /run/ada/run /run/ada/state

# The image is empty but for a few files. /usr is the machine's.
image=/run/image
mkdir -p $image
cd $image
mkdir -p dev etc home proc root run/ada run/files run/state sys tmp usr var/lib var/tmp
chmod 1777 tmp var/tmp
for name in bin lib lib32 lib64 libx32 sbin; do
    [ ! -L "/$name" ] || ln -s "$(readlink "/$name")" "$name"
done
cp -r /etc/alternatives /etc/group /etc/ld.so.cache /etc/nsswitch.conf /etc/passwd etc
chown -hR "$owner" $image
