# shellcheck shell=bash
# The files for other package managers and for containers: written for this version, and checked for their syntax.

part_recipes() {
    local file sum="the part \`source\` makes it"
    [ ! -f "$dist/roundelay-$version.tar.gz" ] ||
        sum=$(sha256sum "$dist/roundelay-$version.tar.gz" | cut -d ' ' -f 1)
    mkdir -p "$dist/recipes"
    for file in spack/package.py conda/recipe.yaml container/Containerfile; do
        sed -e "s/@VERSION@/$version/g" -e "s/@SHA256@/$sum/g" "packaging/$file" >"$dist/recipes/${file#*/}"
    done
    python3 "$parts_of/check_recipes.py" "$dist/recipes"
}
