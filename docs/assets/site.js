// Gives the frame of the home page the height of its content.
addEventListener("message", ({ source, data }) => {
  const frame = document.querySelector("#try");
  const height = Number(data?.height);
  if (frame && source === frame.contentWindow && height > 0) frame.style.height = `${height}px`;
});
