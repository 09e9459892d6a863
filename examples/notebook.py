import bertloom

recipe = bertloom.load_recipe("examples/wikibooks.yaml", store="runs/notebook")
for step in bertloom.plan(recipe):
    print(step.label, step.state)
built = bertloom.run(recipe, log=print)

instances = built["build-instances.length-128"]
rows = instances.load()  # a PyArrow dataset
print(rows.count_rows(), rows.head(1).to_pylist()[0]["input_ids"][:8])

for segment, document in instances.trace(0).segments.items():
    print(segment, document.title, document.revision_id, document.raw_file.name)
