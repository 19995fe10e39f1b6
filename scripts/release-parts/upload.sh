# shellcheck shell=bash
# What needs keys, and what cannot be taken back. Last, and never in a dry run.

part_sums() {
    (cd "$dist" && find . -type f -not -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
    wc -l <"$dist/SHA256SUMS" | sed 's/$/ files/'
}

part_upload() {
    say "signing, with the key that git and gpg have"
    git tag -s "v$version" -m "roundelay $version"
    gpg --batch --yes --armor --detach-sign "$dist/SHA256SUMS"
    say "uploading"
    git push origin "v$version"
    python3 "$parts_of/changes.py" "$version" >"$work/notes.md"
    # shellcheck disable=SC2046
    gh release create "v$version" --verify-tag --title "roundelay $version" --notes-file "$work/notes.md" \
        $(find "$dist" -maxdepth 1 -type f)
    cargo publish --workspace --locked --exclude roundelay-python --exclude roundelay-nccl \
        --exclude roundelay-tests --exclude roundelay-examples --exclude roundelay-prototypes
    twine upload "$dist/roundelay-$version"-*.whl "$dist/roundelay-$version.tar.gz"
}
