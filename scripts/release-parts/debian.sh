# shellcheck shell=bash
# Debian packages: roundelay, libroundelay1, libroundelay-dev, libroundelay-nccl.

part_debian() {
    local arch debian lib
    for arch in "${targets[@]}"; do
        stage "$arch"
        case $arch in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; esac
        lib=usr/lib/$arch-linux-gnu
        local from=$work/prefix-$arch
        begin_package roundelay "$debian"
        mkdir -p "$package"/usr/{bin,share/man/man1} "$package"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
        cp "$from/bin/roundelay" "$package/usr/bin/"
        cp "$from"/share/man/man1/*.1 "$package/usr/share/man/man1/"
        gzip -9n "$package"/usr/share/man/man1/*.1
        cp "$from"/share/bash-completion/completions/* "$package/usr/share/bash-completion/completions/"
        cp "$from"/share/zsh/site-functions/* "$package/usr/share/zsh/vendor-completions/"
        cp "$from"/share/fish/vendor_completions.d/* "$package/usr/share/fish/vendor_completions.d/"
        end_package
        begin_package libroundelay1 "$debian"
        mkdir -p "$package/$lib"
        cp -a "$from/lib/libroundelay.so.$version" "$from/lib/libroundelay.so.1" "$package/$lib/"
        mkdir -p "$package/DEBIAN"
        echo "libroundelay 1 libroundelay1 (>= $version)" >"$package/DEBIAN/shlibs"
        check_functions "$from/lib/libroundelay.so.1"
        sed 's/ #MINVER#//' packaging/debian/libroundelay1.symbols >"$package/DEBIAN/symbols"
        echo "activate-noawait ldconfig" >"$package/DEBIAN/triggers"
        end_package
        begin_package libroundelay-dev "$debian"
        mkdir -p "$package"/{usr/include,$lib/pkgconfig}
        cp "$from/include/roundelay.h" "$package/usr/include/"
        cp -a "$from/lib/libroundelay.so" "$package/$lib/"
        sed -e "s|^prefix=.*|prefix=/usr|" -e "s|^libdir=.*|libdir=/$lib|" "$from/lib/pkgconfig/roundelay.pc" \
            >"$package/$lib/pkgconfig/roundelay.pc"
        end_package
        begin_package libroundelay-nccl "$debian"
        mkdir -p "$package/$lib/roundelay"
        cp -a "$from"/lib/roundelay/* "$package/$lib/roundelay/"
        end_package
    done
}

# Fails unless a library has every function that was released, and no other.
check_functions() {
    readelf --dyn-syms --wide "$1" | awk '$7 != "UND" && $8 ~ /^rl_/ { sub(/@.*/, "", $8); print $8 }' | sort >"$work/has"
    sed -n 's/^ \(rl_[a-z_0-9]*\)@.*/\1/p' packaging/debian/libroundelay1.symbols | sort >"$work/listed"
    diff "$work/listed" "$work/has" || fail "$1 has other functions than packaging/debian/libroundelay1.symbols"
}

# begin_package NAME ARCHITECTURE: an empty package with its papers in $package.
begin_package() {
    local name=$1
    package=$work/deb/$2/$name
    rm -rf "$package"
    mkdir -p "$package/DEBIAN" "$package/usr/share/doc/$name"
    sed -e "s/@VERSION@/$version/g" -e "s/@ARCHITECTURE@/$2/" "packaging/debian/$name.control" >"$package/DEBIAN/control"
    {
        cat packaging/debian/copyright
        sed -e 's/^/ /' -e 's/^ $/ ./' LICENSE-MIT
    } >"$package/usr/share/doc/$name/copyright"
    # Of the crates whose code is part of it.
    gzip -9n <"$from/share/doc/roundelay/THIRD-PARTY" >"$package/usr/share/doc/$name/THIRD-PARTY.gz"
    {
        printf 'roundelay (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the release.\n\n' "$version"
        printf ' -- The roundelay authors <noreply@users.noreply.github.com>  %s\n' "$(date -R -u -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$package/usr/share/doc/$name/changelog.gz"
}

end_package() {
    local size
    find "$package" -type d -exec chmod 755 {} +
    size=$(du -sk --apparent-size --exclude DEBIAN "$package" | cut -f 1)
    sed -i "s/^Architecture:/Installed-Size: $size\nArchitecture:/" "$package/DEBIAN/control"
    (cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zxz --build "$package" "$dist" >/dev/null
}
